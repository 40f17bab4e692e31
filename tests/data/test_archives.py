"""Archives from strangers, and downloads over connections that break."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from onelabel.data import DataError
from onelabel.data.archives import extract
from onelabel.data.catalogue import BENCHMARKS, Archive, Benchmark, download_benchmark, instructions
from onelabel.data.download import download


def _tar(path: Path, members: list[tuple[str, bytes] | tarfile.TarInfo], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return path


def _special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def _zip(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


GOOD = {"a/b.txt": b"one", "a/c d/é.txt": b"two", "top.txt": b"three"}


@pytest.mark.parametrize("kind", ["tar", "tgz", "zip"])
def test_extracts_and_merges(kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"x.{kind}"
    if kind == "zip":
        _zip(file, GOOD)
    else:
        _tar(file, list(GOOD.items()), "w:gz" if kind == "tgz" else "w")
    target = tmp_path / "out"
    (target / "a").mkdir(parents=True)
    (target / "a" / "kept.txt").write_bytes(b"mine")
    (target / "a" / "b.txt").write_bytes(b"old")
    assert extract(file, target) == [target / "a", target / "top.txt"]
    assert _tree(target) == {**GOOD, "a/kept.txt": b"mine"}


@pytest.mark.parametrize(
    "name", ["../out.txt", "/tmp/onelabel-out.txt", "a/../../out.txt", "..\\out.txt", "C:\\out.txt"]
)
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_nothing_is_written_outside(name: str, kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"x.{kind}"
    if kind == "zip":
        _zip(file, {"fine.txt": b"1", name: b"evil"})
    else:
        _tar(file, [("fine.txt", b"1"), (name, b"evil")])
    with pytest.raises(DataError, match="outside the target; refused"):
        extract(file, tmp_path / "deep" / "out")
    assert _tree(tmp_path / "deep") == {}  # not even what came before it
    assert not os.path.exists("/tmp/onelabel-out.txt")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["deep", file.name]


@pytest.mark.parametrize(
    "member",
    [
        _special("link", tarfile.SYMTYPE, "/etc"),
        _special("link", tarfile.LNKTYPE, "../../secret"),
        _special("pipe", tarfile.FIFOTYPE),
        _special("device", tarfile.CHRTYPE),
    ],
    ids=["symlink", "hardlink", "pipe", "device"],
)
def test_links_and_devices_are_refused(member: tarfile.TarInfo, tmp_path: Path) -> None:
    file = _tar(tmp_path / "x.tar", [member, ("link/passwd", b"evil")])
    with pytest.raises(DataError, match="link or a device; refused"):
        extract(file, tmp_path / "out")
    assert _tree(tmp_path / "out") == {}


def test_zip_symlink_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        info = zipfile.ZipInfo("link")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc")
    with pytest.raises(DataError, match="refused"):
        extract(tmp_path / "x.zip", tmp_path / "out")


def test_a_link_in_the_target_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").symlink_to(tmp_path / "elsewhere")
    extract(_zip(tmp_path / "x.zip", GOOD), tmp_path / "out")
    assert _tree(tmp_path / "elsewhere") == {}
    assert (tmp_path / "out" / "a" / "b.txt").read_bytes() == b"one"


def test_bounds(tmp_path: Path) -> None:
    bomb = _zip(tmp_path / "x.zip", {"zeros": bytes(3_000_000)})
    assert bomb.stat().st_size < 10_000
    with pytest.raises(DataError, match="refused"):
        extract(bomb, tmp_path / "out", max_bytes=1_000_000)
    with pytest.raises(DataError, match="members"):
        extract(_zip(tmp_path / "y.zip", GOOD), tmp_path / "out", max_members=2)
    assert _tree(tmp_path / "out") == {}


@pytest.mark.parametrize("kind", ["tar", "tgz", "zip"])
def test_damaged(kind: str, tmp_path: Path) -> None:
    data = {"a": os.urandom(50_000), "b": os.urandom(50_000)}
    file = tmp_path / f"x.{kind}"
    whole = (
        _zip(file, data) if kind == "zip" else _tar(file, list(data.items()), "w:gz" if kind == "tgz" else "w")
    ).read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"download it again"):
        extract(file, tmp_path / "out")
    assert _tree(tmp_path / "out") == {}
    if kind == "zip":
        file.write_bytes(whole[:5000] + bytes(1000) + whole[6000:])
        with pytest.raises(DataError, match="download it again"):
            extract(file, tmp_path / "out")


# --- downloads ---------------------------------------------------------------------------------------------------

DATA = os.urandom(3_000_000)


class Server(ThreadingHTTPServer):
    """Serves DATA; breaks the connection after `break_at` bytes of each of the first `breaks` answers."""

    daemon_threads = True
    ranges = True
    etag: str | None = '"v1"'
    breaks = 0
    break_at = 1_000_000
    errors = 0
    body = DATA

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file.bin"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, wanted = self.server, self.headers.get("Range")
        server.asked.append(wanted)
        if self.path != "/file.bin":
            self.send_error(404)
            return
        if server.errors:
            server.errors -= 1
            self.send_error(503)
            return
        start = 0
        if wanted and server.ranges and self.headers.get("If-Range") == server.etag:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(server.body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(server.body)}")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(server.body) - 1}/{len(server.body)}")
        else:
            self.send_response(200)
        body = server.body[start:]
        self.send_header("Content-Length", str(len(body)))
        if server.etag:
            self.send_header("ETag", server.etag)
        self.end_headers()
        if server.breaks:
            server.breaks -= 1
            self.wfile.write(body[: server.break_at])
            self.wfile.flush()
            self.connection.close()
            return
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    made = Server()
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()


MD5 = hashlib.md5(DATA).hexdigest()


def test_download_and_not_twice(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "new" / "file.bin"
    assert download(server.url, target, md5=MD5, sha256=hashlib.sha256(DATA).hexdigest()) == target
    assert target.read_bytes() == DATA
    assert [p.name for p in target.parent.iterdir()] == ["file.bin"]
    download(server.url, target, md5=MD5)
    assert len(server.asked) == 1


def test_broken_connection_is_resumed_in_one_call(server: Server, tmp_path: Path) -> None:
    server.breaks = 2
    assert download(server.url, tmp_path / "f", md5=MD5, wait=0).read_bytes() == DATA
    assert server.asked == [None, "bytes=1000000-", "bytes=2000000-"]


def test_a_later_call_goes_on(server: Server, tmp_path: Path) -> None:
    server.breaks, server.errors = 1, 0
    server_errors_after_break(server)
    with pytest.raises(DataError, match=r"1,000,000 bytes are kept in f.part"):
        download(server.url, tmp_path / "f", md5=MD5, retries=1, wait=0)
    assert not (tmp_path / "f").exists()
    server.errors = 0
    server.asked.clear()
    assert download(server.url, tmp_path / "f", md5=MD5, wait=0).read_bytes() == DATA
    assert server.asked == ["bytes=1000000-"]


def server_errors_after_break(server: Server) -> None:
    """From the second request on, the server is unavailable."""
    serve = Handler.do_GET

    def once(self: Handler) -> None:
        if len(self.server.asked) == 1:
            self.server.errors = 2
        serve(self)

    server.RequestHandlerClass = type("Once", (Handler,), {"do_GET": once})


def test_servers_without_ranges_or_with_a_new_file_start_anew(server: Server, tmp_path: Path) -> None:
    server.ranges, server.breaks = False, 1
    assert download(server.url, tmp_path / "f", md5=MD5, wait=0).read_bytes() == DATA
    (tmp_path / "g.part").write_bytes(b"old bytes of an older file")
    (tmp_path / "g.part.json").write_text('{"version": "\\"v0\\""}')
    server.ranges = True
    assert download(server.url, tmp_path / "g", md5=MD5).read_bytes() == DATA
    notes = [
        "",
        "null",
        "3",
        '["a"]',
        "[" * 5000,
        '{"version": 1}',
        '{"version": "a\\r\\nb"}',
        '{"version": "é"}',
        "\udcff",
    ]
    for i, note in enumerate([None, *notes]):
        part = tmp_path / f"h{i}.part"
        part.write_bytes(b"bytes of nobody knows what")
        if note is not None:
            part.with_name(f"h{i}.part.json").write_text(note, encoding="utf-8", errors="surrogateescape")
        assert download(server.url, tmp_path / f"h{i}", md5=MD5).read_bytes() == DATA


def test_a_complete_part_is_taken(server: Server, tmp_path: Path) -> None:
    (tmp_path / "f.part").write_bytes(DATA)
    (tmp_path / "f.part.json").write_text('{"version": "\\"v1\\""}')
    assert download(server.url, tmp_path / "f", md5=MD5).read_bytes() == DATA
    assert server.asked == ["bytes=3000000-"]


def test_wrong_checksums(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="checksum is wrong"):
        download(server.url, tmp_path / "f", md5="0" * 32)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "f").write_bytes(b"something else")
    with pytest.raises(DataError, match="remove it"):
        download(server.url, tmp_path / "f", md5=MD5)


def test_addresses_that_cannot_work(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="404"):
        download(server.url + "x", tmp_path / "f")
    with pytest.raises(DataError, match="http://"):
        download("file:///etc/passwd", tmp_path / "f")
    url = server.url
    server.shutdown()
    server.server_close()
    with pytest.raises(DataError, match=r"no byte came: is there a network\? run it again to go on"):
        download(url, tmp_path / "f", retries=1, wait=0)


def test_without_a_network_one_line_says_that_it_is_tried_again(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ONELABEL_QUIET")
    server.shutdown()
    server.server_close()
    with pytest.raises(DataError):
        download(server.url, tmp_path / "f", retries=4, wait=0)
    told = capsys.readouterr().err
    assert told.count("trying again") == told.count("\n") == 1
    assert "0 bytes" not in told


def test_a_benchmark_is_downloaded_and_extracted_once(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.body = _zip(tmp_path / "made.zip", GOOD).read_bytes()
    made = Benchmark(
        "toy",
        (Archive(server.url, hashlib.md5(server.body).hexdigest()),),
        "a/b.txt",
        "none",
        BENCHMARKS["cub"].published,
    )
    monkeypatch.setitem(BENCHMARKS, "toy", made)
    folder = download_benchmark("toy", tmp_path / "data")
    assert {k: v for k, v in _tree(folder).items() if not k.startswith(".")} == GOOD
    download_benchmark("toy", tmp_path / "data")
    assert len(server.asked) == 1


def test_nuswide_says_exactly_what_to_put_where(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be downloaded") as caught:
        download_benchmark("nuswide", tmp_path)
    for words in ("Concepts81.txt", "TrainImagelist", "TrainTestLabels", "Flickr", str(tmp_path / "nuswide")):
        assert words in str(caught.value).replace("{Train,Test}Imagelist", "TrainImagelist")
    with pytest.raises(DataError, match="expected one of voc2012"):
        download_benchmark("imagenet", tmp_path)
    official = ("host.robots.ox.ac.uk", "images.cocodataset.org", "data.caltech.edu")
    for benchmark in BENCHMARKS.values():
        for archive in benchmark.archives:
            assert archive.url.split("/")[2] in official
            assert len(archive.md5) == 32
        assert benchmark.name in instructions(benchmark.name, tmp_path)
