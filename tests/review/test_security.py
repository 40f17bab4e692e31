"""Who gets in, what is served, and what every response carries."""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from onelabel.review import Settings, create_app, read_recovered, write_recovered
from onelabel.review.database import Database
from onelabel.review.load import load_recovered
from onelabel.review.pictures import NoPicture, Thumbnails, safe_path
from onelabel.review.settings import is_loopback

TOKEN = "correct horse battery staple"
OWN = {"Origin": "http://localhost", "X-Onelabel-Tab": "t"}


def bomb() -> bytes:
    """A PNG of a few bytes that claims 60,000 × 60,000 pixels."""
    head = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + head
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk)) + b"\0" * 20


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of which every example tries something."""
    folder = tmp_path_factory.mktemp("hostile")
    root = folder / "root"
    root.mkdir()
    (folder / "secret.jpg").write_bytes(b"secret")
    Image.new("RGB", (50, 40)).save(folder / "outside.jpg")
    Image.new("RGB", (500, 400), (9, 99, 199)).save(root / "fine.jpg")
    os.symlink(folder / "outside.jpg", root / "link.jpg")
    os.symlink(folder, root / "folder")
    os.symlink(root / "fine.jpg", root / "inner.jpg")
    (root / "bomb.png").write_bytes(bomb())
    (root / "page.jpg").write_text("<script>alert(1)</script>")
    os.mkfifo(root / "pipe.jpg")
    examples = ["fine.jpg", "../outside.jpg", "link.jpg", "folder/outside.jpg", str(folder / "outside.jpg"), "bomb.png"]
    examples += ["page.jpg", "pipe.jpg", "none.jpg", "/etc/passwd", "", "inner.jpg", "a\0b.jpg", "."]
    size = len(examples)
    columns = {"row": range(size), "example": examples, "class_index": [0] * size, "probability": [0.5] * size}
    columns |= {"observed": [0] * size, "rank": range(size)}
    # NUL is dropped for the file: PostgreSQL could not even store it
    columns["example"] = [example.replace("\0", "") for example in examples]
    write_recovered(folder / "recovered.parquet", columns, root="root", class_names=["<script>alert(1)</script>"])
    return folder


@pytest.fixture
def make_client(hostile: Path, tmp_path: Path) -> Iterator[Callable[..., TestClient]]:
    def make(**settings: Any) -> TestClient:
        db = Database(tmp_path / "x.db")
        load_recovered(db, read_recovered(hostile / "recovered.parquet"))
        app = create_app(Settings(db=str(tmp_path / "x.db"), folder=tmp_path / "f", **settings), db)
        return TestClient(app, base_url="http://localhost")

    return make  # type: ignore[return-value]


def test_pictures_of_the_dataset_and_nothing_else(make_client: Callable[..., TestClient]) -> None:
    client = make_client()
    got = [client.get(f"/api/pictures/{row}/image") for row in range(14)]
    assert [response.status_code for response in got] == [
        *(200, 403, 403, 403, 403, 422, 422, 404, 404, 403, 404, 200, 404, 403),
    ]
    assert got[0].headers["content-type"] == "image/jpeg"
    assert b"secret" not in b"".join(response.content for response in got)
    assert client.get("/api/pictures/99/image").status_code == 404
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd"):
        assert client.get(path).status_code == 404


def test_thumbnails_are_small_cached_and_revalidated(hostile: Path, make_client: Callable[..., TestClient]) -> None:
    client = make_client()
    first = client.get("/api/pictures/0/image")
    assert client.get("/api/pictures/0/image", headers={"If-None-Match": first.headers["etag"]}).status_code == 304
    from io import BytesIO

    assert Image.open(BytesIO(first.content)).size == (240, 192)
    assert Image.open(BytesIO(client.get("/api/pictures/0/image?size=zoom").content)).size == (500, 400)


def test_thumbnails_beside_class_folders_are_no_pictures_of_a_class(
    hostile: Path, make_client: Callable[..., TestClient], tmp_path: Path
) -> None:
    from onelabel.data import load_dataset

    assert make_client().get("/api/pictures/0/image").status_code == 200
    assert list((tmp_path / "f").rglob("*.*")), "no thumbnail was kept"
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        shutil.copy(hostile / "root" / "fine.jpg", tmp_path / name)
    assert load_dataset(tmp_path, validation=0).class_names == ("cat", "dog")


def test_the_cache_stays_within_its_bound(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    cache = Thumbnails(tmp_path / "cache", 60_000)
    for i in range(12):
        Image.fromarray(rng.integers(0, 255, (120, 120, 3), np.uint8)).save(tmp_path / f"{i}.png")
        assert cache.get(str(tmp_path / f"{i}.png"), "thumb")
    assert sum(path.stat().st_size for path in (tmp_path / "cache").rglob("*.jpg")) <= 66_000


def test_paths_with_nul_and_no_root_are_refused(tmp_path: Path) -> None:
    for example, roots in (("a\0b", [tmp_path]), ("a.jpg", [])):
        with pytest.raises(NoPicture):
            safe_path(example, roots)
    (tmp_path / "root").mkdir()
    (tmp_path / "root-other").mkdir()
    (tmp_path / "root-other" / "a.jpg").write_bytes(b"x")
    with pytest.raises(NoPicture):  # a common prefix is not a folder
        safe_path("../root-other/a.jpg", [tmp_path / "root"])


def test_writes_need_the_own_origin(make_client: Callable[..., TestClient]) -> None:
    client = make_client()
    tab = {"X-Onelabel-Tab": "t"}
    refused = [
        {},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:81"},
        {"Origin": "http://localhost", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://evil.example", "X-Onelabel-Client": "1"},
    ]
    for headers in refused:
        assert client.post("/api/queue", json={}, headers={**tab, **headers}).status_code == 403
        assert client.request("DELETE", "/api/session", headers=headers).status_code == 403
    assert client.post("/api/queue", json={}, headers=OWN).status_code == 200
    assert client.post("/api/queue", json={}, headers={**tab, "X-Onelabel-Client": "1"}).status_code == 200
    assert client.get("/api/me", headers={"Host": "evil.example"}).status_code == 400
    assert client.post("/api/answers", content=b"x" * (1 << 21), headers=OWN).status_code == 413
    preflight = client.options("/api/answers", headers={"Origin": "http://evil.example"})
    assert "access-control-allow-origin" not in preflight.headers


def test_every_response_carries_the_headers(make_client: Callable[..., TestClient]) -> None:
    client = make_client()
    for path in ("/", "/static/app.js", "/api/me", "/api/pictures/0/image", "/nothing", "/openapi.json"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers
    page = client.get("/").text
    assert "style=" not in page
    assert "<script>" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page


def test_a_foreign_host_needs_a_token(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "192.168.1.5", "::", "example.org"):
        with pytest.raises(ValueError, match="needs a token"):
            Settings(db="x", folder=tmp_path, host=host)
        Settings(db="x", folder=tmp_path, host=host, token=TOKEN)
    with pytest.raises(ValueError, match="16 characters"):
        Settings(db="x", folder=tmp_path, token="short")
    assert Settings(db="x", folder=tmp_path).host == "127.0.0.1"
    assert [is_loopback(h) for h in ("localhost", "127.0.0.2", "::1", "10.0.0.1", "local")] == [True] * 3 + [False] * 2


def test_with_a_token_nothing_is_served_before_signing_in(make_client: Callable[..., TestClient]) -> None:
    client = make_client(host="0.0.0.0", token=TOKEN)
    assert client.get("/api/me").json()["name"] is None
    for path in ("/classes", "/progress", "/history", "/export", "/retrain", "/pictures/0/image", "/retrain/events"):
        assert client.get(f"/api{path}").status_code == 401, path
    for path in ("/queue", "/audit", "/leases", "/answers", "/undo", "/retrain", "/retrain/cancel"):
        body = {"action": "renew", "request_id": "12345678", "answers": []}
        assert client.post(f"/api{path}", json=body, headers=OWN).status_code in (401, 422), path
    assert client.post("/api/queue", json={}, headers=OWN).status_code == 401
    wrong = {"name": "ann", "token": "wrong"}
    assert client.post("/api/session", json=wrong, headers=OWN).status_code == 401
    good = client.post("/api/session", json={"name": "ann", "token": TOKEN}, headers=OWN)
    assert good.status_code == 200
    cookie = good.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN not in cookie
    assert client.get("/api/me").json()["name"] == "ann"
    assert client.post("/api/queue", json={}, headers=OWN).status_code == 200
    assert client.delete("/api/session", headers=OWN).status_code == 204
    assert client.get("/api/classes").status_code == 401


def test_wrong_tokens_are_limited(make_client: Callable[..., TestClient]) -> None:
    client = make_client(token=TOKEN)
    codes = [client.post("/api/session", json={"name": "a", "token": "x"}, headers=OWN).status_code for _ in range(12)]
    assert codes == [401] * 10 + [429] * 2
    assert client.post("/api/session", json={"name": "a", "token": TOKEN}, headers=OWN).status_code == 429


def test_a_session_survives_a_restart_and_only_its_hash_is_stored(
    make_client: Callable[..., TestClient], tmp_path: Path
) -> None:
    client = make_client(token=TOKEN)
    client.post("/api/session", json={"name": "ann", "token": TOKEN}, headers=OWN)
    secret = next(iter(client.cookies.values()))
    again = make_client(token=TOKEN)
    again.cookies.update(client.cookies)
    assert again.get("/api/me").json()["name"] == "ann"
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("x.db*"))
    assert secret.encode() not in stored
    assert TOKEN.encode() not in stored
