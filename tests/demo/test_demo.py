"""The demo's way from end to end, on a few tiny scenes; what its numbers show is in docs/demo.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onelabel.cli import main
from onelabel.demo import TINY, run_demo
from onelabel.recovery import RecoveredFile
from onelabel.training import Run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo") / "demo"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONELABEL_QUIET", "1")
        run_demo(out, settings=TINY, device="cpu", echo=lambda line: None)
    return out


def test_everything_is_there(made: Path) -> None:
    found = json.loads((made / "demo.json").read_text())
    assert set(found["networks"]) == {"full labels", "an", "gr", f"auto ({found['chosen']})"}
    assert set(found["probes"]) == {"full labels", "an", "em"}
    assert all(0 < value < 100 for value in found["networks"].values())
    assert (made / "report.html").read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html>")
    assert len((made / "leaderboard.csv").read_text().splitlines()) == 4


def test_pictures_are_a_single_label_collection(made: Path) -> None:
    from onelabel.data import load_dataset

    splits = load_dataset(str(made / "pictures"), validation=0.0)
    assert len(splits.train) == TINY.scenes
    file = RecoveredFile.open(made / "recovered.parquet")
    assert file.folder() == (made / "pictures").resolve()
    assert all((made / "pictures" / example.example).is_file() for example in file.examples())


def test_the_chosen_one_started_from_its_probe(made: Path) -> None:
    """One epoch from a fitted head; `full labels` and `an` began with a random one."""
    runs = {name: Run.load(made / "runs" / name) for name in ("an", "auto")}
    assert runs["auto"].history[0]["loss"] != runs["an"].history[0]["loss"]
    assert (
        runs["auto"].config.weights == runs["an"].config.weights == str(made / "backbone" / "weights-last.safetensors")
    )


def test_a_finished_demo_is_taken_as_it_is(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONELABEL_QUIET", "1")
    before = (made / "runs" / "gr" / "result.json").stat().st_mtime_ns
    first = json.loads((made / "demo.json").read_text())
    again = run_demo(made, settings=TINY, device="cpu", echo=lambda line: None)
    assert (made / "runs" / "gr" / "result.json").stat().st_mtime_ns == before
    assert again["networks"] == first["networks"]


def test_another_seed_needs_another_folder(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--tiny", "--seed", "1", "--out", str(made)])
    assert stop.value.code == 2
    assert "another --out" in capsys.readouterr().err
    (tmp_path / "mine.txt").write_text("keep me")
    with pytest.raises(ValueError, match="holds no demo"):
        run_demo(tmp_path, settings=TINY)


def test_a_run_of_the_demo_knows_its_data(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["eval", str(made / "runs" / "an"), "--json", "--device", "cpu"])
    assert not stop.value.code
    found = json.loads(capsys.readouterr().out)
    assert found["mAP"] == pytest.approx(Run.load(made / "runs" / "an").result["test_mAP"], abs=0.05)
