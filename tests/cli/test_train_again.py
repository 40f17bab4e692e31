"""`onelabel train RUN --labels …`: the same data and settings once more, with what people answered."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from onelabel.cli import main
from onelabel.data import load_dataset
from onelabel.labels import Labels
from onelabel.review.apply import relabelled
from onelabel.training import Run

OPTIONS = {"size": 32, "n_train": 60, "n_validation": 20, "n_test": 20}


def cli(*words: str) -> None:
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    assert not stop.value.code


def test_a_run_is_trained_again_with_given_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loader = [word for name, value in OPTIONS.items() for word in ("-o", f"{name}={value}")]
    small = ["--backbone", "small-cnn", "--size", "32", "--epochs", "1", "--batch-size", "20", "--device", "cpu"]
    cli("train", "digits-scenes", "--method", "em", "-y", "alpha=0.1", "--out", "first", *small, *loader)
    train = load_dataset("digits-scenes", **OPTIONS).train
    Labels.from_true(train.true, train.class_names).save(tmp_path / "labels.npz")
    for folder in ("first-again", "first-again-2"):
        cli("train", "first", "--labels", "labels.npz", "--method", "bce")  # which needs the negatives just given
        assert Run.load(folder).config.epochs == 1
        assert json.loads((tmp_path / folder / "data.json").read_text())["options"]["n_train"] == 60
    cli("train", "first")
    assert Run.load("first-again-3").config.hyper == {"alpha": 0.1}


def test_answers_override_single_entries(tmp_path: Path) -> None:
    from onelabel.review import create_app  # noqa: F401  (needs the extra)
    from onelabel.review.export import Answers

    splits = load_dataset("digits-scenes", **OPTIONS)
    before = splits.train.observed
    answers = Answers(np.array([0, 3]), np.array([1, 2]), np.array([-1, 1], np.int8), {"class_names": None})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onelabel.review.export.load_answers", lambda path: answers)
        after = relabelled(splits, tmp_path / "reviewed.db").train.observed
    assert after == before.with_updates([0, 3], [1, 2], [-1, 1])
    nothing = Answers(np.zeros(0, int), np.zeros(0, int), np.zeros(0, np.int8), {"class_names": None})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onelabel.review.export.load_answers", lambda path: nothing)
        with pytest.raises(ValueError, match=r"reviewed\.db: nothing was answered yet; open it with `onelabel review`"):
            relabelled(splits, tmp_path / "reviewed.db")


def test_labels_of_other_data_are_refused(tmp_path: Path) -> None:
    Labels.from_classes([0, 1], num_classes=3).save(tmp_path / "labels.npz")
    with pytest.raises(ValueError, match=r"labels of shape \(2, 3\), expected \(60, 10\)"):
        relabelled(load_dataset("digits-scenes", **OPTIONS), tmp_path / "labels.npz")


def test_autos_folder_says_the_mode_it_trains_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loader = [word for name, value in OPTIONS.items() for word in ("-o", f"{name}={value}")]
    small = ["--backbone", "small-cnn", "--size", "32", "--epochs", "1", "--batch-size", "20", "--device", "cpu"]
    cli("train", "digits-scenes", "--method", "auto", "--mode", "linearinit", "-s", "student=off", *small, *loader)
    assert Run.load("runs/digits-scenes-auto-finetune").config.mode == "finetune"


@pytest.mark.parametrize("kind", ["reviewed.db", "answers.parquet"])
def test_answers_go_to_the_pictures_they_are_about(tmp_path: Path, kind: str) -> None:
    """`recover photos/` takes every picture, `train` holds some out: a row's number is another in each."""
    from PIL import Image

    from onelabel.recovery import recover
    from onelabel.review.database import Database
    from onelabel.review.export import Answers, export_file, import_answers
    from onelabel.review.load import load_recovered
    from onelabel.review.source import read_recovered

    for number in range(20):
        target = tmp_path / "photos" / "ab"[number % 2] / f"{number}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(target)
    whole = load_dataset(tmp_path / "photos", validation=0.0).train
    splits = load_dataset(tmp_path / "photos")
    scores = np.random.default_rng(0).standard_normal((20, 2)).astype(np.float32)
    examples, names = list(whole.source.paths), list(whole.class_names)
    labels = Labels(whole.observed.indptr, whole.observed.indices, whole.observed.values, 2, names)
    how = {"examples": examples, "root": "photos", "floor": 1e-4, "show": False}
    recover(None, labels, tmp_path / "r.parquet", scores=scores, **how)
    database = Database(tmp_path / "reviewed.db")
    load_recovered(database, read_recovered(tmp_path / "r.parquet"), min_probability=0, quiet=True)
    other = 1 - whole.observed.to_dense().argmax(1)
    said = Answers(np.arange(20), other, np.where(np.arange(20) % 3, 1, -1).astype(np.int8), {"class_names": names})
    import_answers(database, said)
    export_file(database, tmp_path / "answers.parquet")
    database.close()

    after = relabelled(splits, tmp_path / kind).train
    assert len(after) == 16
    for path, row in zip(after.source.paths, after.observed.to_dense(), strict=True):
        was = examples.index(path)
        assert row[other[was]] == said.values[was]
        assert row[1 - other[was]] == 1
    elsewhere = load_dataset("digits-scenes", **OPTIONS)
    with pytest.raises(ValueError, match="answers about other classes"):
        relabelled(elsewhere, tmp_path / kind)


def test_a_run_is_resumed_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its own data, settings and labels, in its own folder; a finished one is taken as it is."""
    monkeypatch.chdir(tmp_path)
    small = ["--backbone", "small-cnn", "--size", "32", "--batch-size", "20", "--device", "cpu", "--mode", "finetune"]
    words = ["train", "digits-scenes", "--method", "bce", "--labels", "labels.npz", *small]
    words += [word for name, value in OPTIONS.items() for word in ("-o", f"{name}={value}")]
    train = load_dataset("digits-scenes", **OPTIONS).train
    Labels.from_true(train.true, train.class_names).save(tmp_path / "labels.npz")
    cli(*words, "--epochs", "3", "--out", "straight")
    cli(*words, "--epochs", "1", "--out", "begun")
    state = next((tmp_path / "begun" / "checkpoint").glob("*/state.json"))
    for file, was, now in (
        (tmp_path / "begun" / "config.toml", "epochs = 1", "epochs = 3"),
        (state, '"epochs": 1,', '"epochs": 3,'),
    ):
        file.write_text(file.read_text().replace(was, now, 1))  # as if it had been stopped after the first of three
    (tmp_path / "begun" / "result.json").unlink()
    cli("train", "begun", "--resume")
    assert not (tmp_path / "begun-again").exists()
    for _ in range(2):
        metrics = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("begun", "straight")]
        assert metrics[0] == metrics[1]
        cli("train", "begun", "--resume")  # finished by now
    (tmp_path / "begun" / "data.json").unlink()
    (tmp_path / "begun" / "result.json").unlink()
    with pytest.raises(SystemExit) as stop:
        main(["train", "begun", "--resume"])
    assert stop.value.code
    assert "give the data again: onelabel train DATA --out begun --resume" in capsys.readouterr().err
