"""Every method in every mode on digits-scenes, and the methods in the order the papers have them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from training_workers import HYPER, SMALL

import onelabel
from onelabel.data import Splits, load_dataset
from onelabel.labels import Labels
from onelabel.training import train

MODES = ("linear", "finetune", "linearinit")


@pytest.fixture(scope="module")
def tiny() -> Splits[Any]:
    return load_dataset("digits-scenes", size=16, n_train=90, n_validation=30, n_test=30)


@pytest.mark.parametrize("name", onelabel.list_methods())
def test_every_method_trains_in_each_mode(tiny: Splits[Any], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONELABEL_QUIET", "1")
    if name in ("bce", "bce-ls", "iu", "iun"):  # these learn from observed negatives
        part = tiny.train
        known = Labels.from_true(part.true, part.class_names)
        tiny = replace(tiny, train=replace(part, observed=known))
    for mode in MODES:
        settings = {**SMALL, "size": 16, "epochs": 2, "linear_epochs": 1, "batch_size": 32, "mode": mode}
        run = train(tiny, method=name, hyper=HYPER.get(name, {}), **settings)
        assert 0 < run.result["test_mAP"] < 100
        student = [0, 1] if name == "roll-call" else []
        assert [row["epoch"] for row in run.history] == [*([0] if mode == "linearinit" else []), 0, 1, *student]
        assert all(torch.isfinite(p).all() for p in run.classifier.parameters())


@pytest.mark.slow
def test_order_of_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """AN < EM, GR < full labels in test mAP; docs/training.md records the margins, about 7, 7 and 10."""
    monkeypatch.setenv("ONELABEL_QUIET", "1")
    torch.set_num_threads(1)
    splits = load_dataset("digits-scenes", size=32, n_train=2000, n_validation=300, n_test=1000)
    train_part = splits.train
    known = Labels.from_true(train_part.true, train_part.class_names)
    full = replace(splits, train=replace(train_part, observed=known))
    found = {}
    for name in ("an", "em", "gr", "bce"):
        run = train(
            full if name == "bce" else splits,
            method=name,
            mode="finetune",
            backbone="small-cnn",
            size=32,
            epochs=12,
            lr=3e-3,
            head_lr_scale=1.0,
            batch_size=32,
            schedule="cosine",
            augment="none",
            save_scores=False,
            device="cpu",
        )
        found[name] = run.result["test_mAP"]
    assert found["em"] > found["an"] + 3
    assert found["gr"] > found["an"] + 3
    assert found["bce"] > max(found["em"], found["gr"]) + 3
