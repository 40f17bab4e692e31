"""Ctrl-C and its like, sent to real processes: exit code 130, nothing half-written, and a run that resumes."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from processes import features, interrupted, only_hostile, run

pytestmark = pytest.mark.slow
TRAIN = ["--mode", "linear", "--epochs", "300", "--batch-size", "4", "--device", "cpu", "--set", "logger=none"]


def _quiet_end(code: int, errors: str) -> None:
    assert code == 130, errors
    assert "Traceback" not in errors


def _no_leftovers(folder: Path) -> None:
    assert not [path.name for path in folder.rglob("*") if ".tmp" in path.name]


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=only_hostile)])
def test_train_stops_and_goes_on(number: int, tmp_path: Path) -> None:
    data, out = features(tmp_path / "f.npz"), tmp_path / "run"
    words = ["train", str(data), "--out", str(out), *TRAIN]
    code, errors = interrupted(*words, cwd=tmp_path, number=number, when=(out / "checkpoint/latest.json").is_file)
    _quiet_end(code, errors)
    assert "can be resumed" in errors
    _no_leftovers(out)
    state = json.loads(next(out.glob("checkpoint/*/state.json")).read_text())
    done = state["position"]["epoch"]
    assert 0 <= done < 300
    again = run(*words, "--resume", cwd=tmp_path)
    assert again.returncode == 0, again.stderr.decode()
    epochs = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    phases = ("linear", "student")
    assert [(e["phase"], e["epoch"]) for e in epochs] == [(phase, epoch) for phase in phases for epoch in range(300)]


def test_recover_and_compare_stop(tmp_path: Path) -> None:
    data = features(tmp_path / "f.npz", rows=6000, width=64)
    code, errors = interrupted("recover", str(data), "--out", "r.parquet", cwd=tmp_path, number=signal.SIGINT, wait=0.7)
    _quiet_end(code, errors)
    words = ["compare", str(data), "--epochs", "5000", "--out", "board.csv"]
    code, errors = interrupted(*words, cwd=tmp_path, number=signal.SIGINT, wait=1.5)
    _quiet_end(code, errors)
    _no_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"f.npz", "stderr.txt"}


@only_hostile
def test_predict_stops(tmp_path: Path) -> None:
    from PIL import Image

    from onelabel.data import load_dataset
    from onelabel.training import train

    data = load_dataset("digits-scenes", size=24, n_train=20, n_validation=10, n_test=10)
    train(data, method="em", out=tmp_path / "run", backbone="small-cnn", size=24, epochs=1, logger="none", device="cpu")
    Image.new("RGB", (24, 24)).save(tmp_path / "a.jpg")
    (tmp_path / "list.txt").write_text("a.jpg\n" * 300_000)
    words = ["predict", "run", "list.txt", "--out", "p.jsonl", "--device", "cpu"]
    code, errors = interrupted(
        *words, cwd=tmp_path, number=signal.SIGINT, when=lambda: any(tmp_path.glob(".p.jsonl*")), wait=2
    )
    _quiet_end(code, errors)
    assert not (tmp_path / "p.jsonl").exists()
    _no_leftovers(tmp_path)


@only_hostile
def test_a_second_process_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    data, out = features(tmp_path / "f.npz"), tmp_path / "run"
    words = ["train", str(data), "--out", str(out), *TRAIN]
    seen: list[str] = []

    def intrude() -> bool:
        if (out / "checkpoint/latest.json").is_file():
            second = run(*words, "--resume", cwd=tmp_path)
            seen.append(second.stderr.decode())
            assert second.returncode == 2, seen
        return bool(seen)

    longer = [word if word != "300" else "100000" for word in words] + ["--method", "em"]  # which probes nothing first
    code, errors = interrupted(*longer, cwd=tmp_path, number=signal.SIGINT, when=intrude)
    _quiet_end(code, errors)
    assert "another process is training there" in seen[0]
    assert len(seen[0].strip().splitlines()) == 1
