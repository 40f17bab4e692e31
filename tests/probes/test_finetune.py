"""`method="auto"`: the winner of the probes is what is trained, from its probe's head."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from onelabel.data import FeatureDataset, Splits, load_dataset
from onelabel.labels import drop_labels
from onelabel.probes.finetune import config_before, train_chosen

SMALL = {"backbone": "small-cnn", "size": 32, "device": "cpu", "batch_size": 25, "lr": 1e-4, "logger": "none"}


def scenes():  # type: ignore[no-untyped-def]
    return load_dataset("digits-scenes", size=32, n_train=120, n_validation=40, n_test=40)


def test_fine_tuning_starts_from_the_winning_probe(tmp_path) -> None:  # type: ignore[no-untyped-def]
    run, choice = train_chosen(scenes(), out=tmp_path / "run", mode="finetune", epochs=1, progress=False, **SMALL)
    assert run.config.method == choice.spec.method
    assert choice.criterion == "clean"
    # one epoch at this rate moves the head by at most lr·10 a step: it is still the probe's
    head = run.classifier.head.weight.detach().numpy()
    assert np.abs(head - choice.weight).max() < 1e-3 * 2 * 8
    assert np.corrcoef(head.ravel(), choice.weight.ravel())[0, 1] > 0.99


def test_resuming_goes_on_with_what_was_chosen(tmp_path) -> None:  # type: ignore[no-untyped-def]
    settings = {**SMALL, "mode": "finetune", "epochs": 2, "progress": False}
    first, choice = train_chosen(scenes(), out=tmp_path / "run", **settings)
    again, none = train_chosen(scenes(), out=tmp_path / "run", resume=True, **settings)
    assert choice is not None
    assert none is None
    assert again.config.method == choice.spec.method
    assert again.result["test_mAP"] == first.result["test_mAP"]


def test_resuming_without_a_checkpoint_says_that_it_starts_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: dict[str, Any] = {**SMALL, "mode": "finetune", "epochs": 1, "progress": False}
    train_chosen(scenes(), out=tmp_path / "run", **settings)
    shutil.rmtree(tmp_path / "run" / "checkpoint")
    capsys.readouterr()
    run, choice = train_chosen(scenes(), out=tmp_path / "run", resume=True, **settings)
    assert choice is not None
    assert run.config.method == choice.spec.method
    assert "no checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize("told", [None, "off"])
def test_whatever_wins_teaches_a_student(told: str | None) -> None:
    """A head as a network (docs/roll-call.md), unless told not to or where no rows are held out."""
    rng = np.random.default_rng(0)
    true = (rng.random((90, 4)) < 0.4).astype(np.uint8)
    true[np.arange(90), rng.integers(4, size=90)] = 1
    X = (true @ rng.normal(size=(4, 8)) + 0.3 * rng.normal(size=(90, 8))).astype(np.float32)
    parts = [
        FeatureDataset(name, tuple("abcd"), X[at], drop_labels(true[at], seed=0), true[at])
        for name, at in (("train", slice(60)), ("validation", slice(60, 90)))
    ]
    settings: dict[str, Any] = {"device": "cpu", "logger": "none", "epochs": 2, "progress": False}
    settings |= {} if told is None else {"student": told}
    run, choice = train_chosen(Splits("toy", *parts), **settings)
    assert choice is not None
    assert {row["phase"] for row in run.history} == ({"linear", "student"} if told is None else {"linear"})
    run, _ = train_chosen(Splits("toy", parts[0]), **settings)
    assert {row["phase"] for row in run.history} == {"linear"}


def test_a_method_cannot_be_given_as_well() -> None:
    with pytest.raises(ValueError, match="method='auto' chooses it"):
        train_chosen(scenes(), method="em", **SMALL)


def test_the_winning_probe_is_the_linear_phase() -> None:
    for given, wanted in (
        (None, "finetune"),
        ("linearinit", "finetune"),
        ("finetune", "finetune"),
        ("linear", "linear"),
    ):
        assert config_before(scenes(), {**SMALL, "method": "auto", "mode": given}).mode == wanted
    with pytest.raises(ValueError, match="hyper: method='auto' chooses it"):
        config_before(scenes(), {**SMALL, "method": "auto", "hyper": {"alpha": 0.1}})


def test_what_cannot_be_read_is_no_probes_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    for number in range(24):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(path)
        if number in (3, 8, 9, 17):
            path.write_bytes(path.read_bytes()[:900])
    seen: list[int] = []

    def look(X: Any, observed: Any, *, validation: Any, **_: Any) -> None:
        seen.extend(map(len, (X, observed, *validation)))
        raise InterruptedError

    monkeypatch.setattr("onelabel.probes.finetune.choose", look)
    with pytest.raises(InterruptedError):
        train_chosen(load_dataset(str(tmp_path / "photos")), mode="finetune", epochs=1, progress=False, **SMALL)
    train, observed, validation, named = seen
    assert train == observed
    assert validation == named
    assert train + validation == 20
