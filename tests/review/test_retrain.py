"""Retraining from the page: a real command, followed live, cancelled, and refused while one runs."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from onelabel.review import Settings, create_app, load_answers
from onelabel.review.answers import record
from onelabel.review.change import Said
from onelabel.review.database import Database
from onelabel.review.export import find_reviewer
from onelabel.review.queue import Filters, Who, lease_items
from onelabel.review.retrain import _read

OWN = {"X-Onelabel-Client": "test", "X-Onelabel-Tab": "t"}
#: A real training in small: reads the labels that were exported and counts them, epoch by epoch.
TRAIN = """
import sys, time
from onelabel.review import load_answers
answers = load_answers(sys.argv[1])
for epoch in range(3):
    print(f"epoch {epoch + 1}/3 with {len(answers.rows)} labels – é", flush=True)
    time.sleep(0.05)
"""


def client(db: Database, folder: Path, *command: str) -> TestClient:
    settings = Settings(db="", folder=folder, retrain=command, reviewer="ann")
    return TestClient(create_app(settings, db), base_url="http://localhost")


def events(page: TestClient, start: int = 0) -> list[tuple[str, Any]]:
    text = page.get("/api/retrain/events", headers={"Last-Event-ID": str(start)}).text
    blocks = [dict(line.split(": ", 1) for line in block.splitlines()) for block in text.strip().split("\n\n")]
    return [(block["event"], json.loads(block["data"])) for block in blocks]


def test_a_training_runs_on_the_answers_and_is_followed(db: Database, tmp_path: Path) -> None:
    who = Who(find_reviewer(db, "ann"), "t")
    record(db, who, "1", [Said(i["id"], "yes") for i in lease_items(db, who, Filters(), 7, 60)])
    page = client(db, tmp_path, sys.executable, "-c", TRAIN, "{labels}")
    started = page.post("/api/retrain", json={}, headers=OWN).json()["training"]
    assert started["status"] == "running"
    assert page.post("/api/retrain", json={}, headers=OWN).status_code == 409
    seen = events(page)
    log = "".join(data["text"] for name, data in seen if name == "log")
    assert log.splitlines() == [f"epoch {i}/3 with 7 labels – é" for i in (1, 2, 3)]
    assert seen[-2][1]["status"] == "succeeded"
    assert seen[-1][0] == "end"
    assert len(load_answers(tmp_path / "retrain" / f"{started['id']}.parquet").rows) == 7
    rest = "".join(data["text"] for name, data in events(page, 10) if name == "log")
    assert log.encode()[10:].decode() == rest
    assert page.get("/api/retrain").json()["training"]["exit_code"] == 0


def test_cancel_ends_the_training_and_its_children(tmp_path: Path, data: Any) -> None:
    db = Database(tmp_path / "x.db")
    marker = tmp_path / "alive"
    child = f"import time, pathlib\nwhile True: pathlib.Path({str(marker)!r}).touch(); time.sleep(0.02)"
    parent = f"import subprocess, sys; print('on', flush=True); subprocess.run([sys.executable, '-c', {child!r}])"
    page = client(db, tmp_path, sys.executable, "-c", parent)
    page.post("/api/retrain", json={}, headers=OWN)
    deadline = time.monotonic() + 20
    while not marker.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert page.post("/api/retrain/cancel", json={}, headers=OWN).json() == {"cancelled": True}
    assert page.get("/api/retrain").json()["training"]["status"] == "cancelled"
    marker.unlink()
    time.sleep(0.2)
    assert not marker.exists()
    assert page.post("/api/retrain/cancel", json={}, headers=OWN).json() == {"cancelled": False}


def test_failures_are_told(tmp_path: Path) -> None:
    db = Database(tmp_path / "x.db")
    page = client(db, tmp_path, sys.executable, "-c", "raise SystemExit('no data')")
    page.post("/api/retrain", json={}, headers=OWN)
    seen = events(page)
    assert "no data" in "".join(data["text"] for name, data in seen if name == "log")
    assert seen[-2][1]["status"] == "failed"
    missing = client(db, tmp_path, "/no/such/program")
    assert missing.post("/api/retrain", json={}, headers=OWN).json()["training"]["status"] == "failed"
    none = client(db, tmp_path)
    answer = none.post("/api/retrain", json={}, headers=OWN)
    assert answer.status_code == 409
    assert "--retrain" in answer.json()["detail"]


def test_a_training_the_server_left_behind_is_interrupted(tmp_path: Path) -> None:
    db = Database(tmp_path / "x.db")
    page = client(db, tmp_path, sys.executable, "-c", "import time; time.sleep(60)")
    page.post("/api/retrain", json={}, headers=OWN)
    assert client(db, tmp_path).get("/api/retrain").json()["training"]["status"] == "interrupted"
    page.post("/api/retrain/cancel", json={}, headers=OWN)


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5])
def test_characters_cut_in_two_wait_for_their_other_half(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "log"
    whole = "aé😀".encode()
    path.write_bytes(whole[:cut])
    text, offset = _read(path, 0)
    path.write_bytes(whole)
    assert text + _read(path, offset)[0] == "aé😀"
