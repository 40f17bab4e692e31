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
