"""Every command that prints results prints one strict JSON document with --json, and nothing else on stdout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onelabel.cli import main

TINY = ["-o", "size=16", "-o", "n_train=60", "-o", "n_validation=20", "-o", "n_test=20"]
NETWORK = ["--backbone", "small-cnn", "--size", "16", "--device", "cpu"]


class Caller:
    """Runs commands in a folder of their own."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *words: str, code: int = 0) -> Any:
        with pytest.raises(SystemExit) as stop:
            main([*words, "--json"])
        out = self.capsys.readouterr()
        assert int(stop.value.code or 0) == code, out.err

        def refuse(constant: str) -> None:
            raise AssertionError(f"{words[0]}: {constant} in JSON")

        return json.loads(out.out, parse_constant=refuse)


def test_the_whole_way_in_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONELABEL_CACHE", str(tmp_path / "cache"))
    call = Caller(capsys)
    stats = call("data", "stats", "digits-scenes", *TINY)
    assert stats["images"] == {"train": 60, "validation": 20, "test": 20}

    board = call("compare", "digits-scenes", *TINY, *NETWORK, "--methods", "an,em", "--epochs", "2", "--lr", "1e-2")
    assert {row["method"] for row in board["leaderboard"]} == {"an", "em"}
    assert board["chosen"] == board["leaderboard"][0]

    trained = call("train", "digits-scenes", *TINY, *NETWORK, "--epochs", "1", "--out", "run", "--method", "an")
    assert trained["run"] == "run"
    assert 0 < trained["test_mAP"] < 100

    scored = call("eval", "run", "--device", "cpu")  # the run knows its data
    assert scored["mAP"] == pytest.approx(trained["test_mAP"], abs=0.01)
    assert scored["rows"] == 20

    found = call("recover", "run", "--folds", "2", "--device", "cpu")
    assert len(found["classes"]) == 10
    assert Path(found["file"]) == Path("run/recovered.parquet")
    assert found["k_low"] <= found["k"] <= found["k_high"]

    plan = call("audit", "plan", "run/recovered.parquet", "--rows", "10")
    assert plan["pictures"] == 10
    assert sum(each["drawn"] for each in plan["strata"].values()) == 10

    assert call("export", "run/recovered.parquet", "--to", "csv", "--out", "labels.csv") == {"file": "labels.csv"}
    assert call("figure", "curves", "an", "em", "--out", "curves.svg") == {"file": "curves.svg"}


def test_own_pictures_in_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    call = Caller(capsys)
    for name in ("cat", "dog"):
        Path("photos", name).mkdir(parents=True)
        Image.new("RGB", (20, 20), (90, 20, 20)).save(f"photos/{name}/1.png")
    assert call("data", "check", "photos", "-o", "validation=0")["ok"] is True
    assert call("data", "manifest", "photos", "--out", "m.parquet")["rows"] == 2
    Path("photos/dog/2.png").write_bytes(b"no picture")
    broken = call("data", "check", "photos", "-o", "validation=0", code=1)
    assert broken["lost"] == 1
    assert broken["problems"][0]["name"].endswith("2.png")
    sick = call("doctor", "photos", code=1)
    assert sick["ok"] is False
    assert [each["what"] for each in sick["findings"] if each["level"] == "bad"] == ["data"]
