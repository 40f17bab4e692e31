"""Settings that held-out rows choose before the linear phase."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_folders import assert_same_run
from training_workers import SMALL, scenes

import onelabel
from onelabel.contract import Method
from onelabel.data import FeatureDataset, Splits
from onelabel.labels import drop_labels
from onelabel.losses import EM, RollCall
from onelabel.losses.annotators import fit_slope
from onelabel.losses.naming import NamingHead, with_naming
from onelabel.models import Classifier
from onelabel.probes import ProbeSpec, fit_probes
from onelabel.probes.plan import refuse
from onelabel.training import Run, TrainConfig, loop, train
from onelabel.training.loop import validate
from onelabel.training.prepare import fresh_method

LINEAR: dict[str, Any] = {"mode": "linear", "epochs": 10, "lr": 3e-3, "batch_size": 16, "device": "cpu"}


def features(*, rows: int = 600, classes: int = 8, noise: float, seed: int = 0) -> Splits[Any]:
    """Labels that hidden factors decide, and features that show them through noise."""
    rng = np.random.default_rng(seed)
    hidden = rng.standard_normal((rows, 4))
    true = (hidden @ rng.standard_normal((4, classes)) > 1.2).astype(np.uint8)
    true[np.flatnonzero(~true.any(1)), 0] = 1
    X = np.tanh(hidden @ rng.standard_normal((4, 24))) + noise * rng.standard_normal((rows, 24))
    names = tuple(f"c{i}" for i in range(classes))
    half, most = rows // 2, 3 * rows // 4
    cuts = {"train": slice(0, half), "validation": slice(half, most), "test": slice(most, None)}
    parts = {
        name: FeatureDataset(name, names, X[cut].astype(np.float32), drop_labels(true[cut]), true[cut])
        for name, cut in cuts.items()
    }
    return Splits("made", **parts)


def test_the_trials_are_around_the_default() -> None:
    for classes in (2, 20, 312):
        trials = RollCall.trials(classes)["alpha"]
        assert trials[2] == pytest.approx((0.2 / classes) ** 0.5, rel=1e-3)
        assert trials == pytest.approx([f * trials[2] for f in (0.25, 0.5, 1, 2, 4)], rel=1e-3)
    assert RollCall.trials(20)["alpha"][2] == 0.1
    assert RollCall.trials(20)["naming"] == (0.0, 0.5, 1.0)
    assert RollCall.trials(20, frozen=False).keys() == {"alpha"}
    assert Method.trials(20) == {}


def by_hand(splits: Splits[Any], held: Any, epochs: int = 10, **told: float) -> dict[str, float]:
    """The settings of the best of fifteen probes, trained for themselves."""
    values = product(*RollCall.trials(8).values())
    tried = [told | dict(zip(RollCall.trials(8), each, strict=True)) for each in values]
    specs = [ProbeSpec("roll-call", hyper, lr=3e-3, batch_size=16, epochs=epochs) for hyper in tried]
    assert len(specs) == 15
    assert splits.validation is not None
    results = fit_probes(splits.train.X, splits.train.observed, specs, validation=(splits.validation.X, held))
    return tried[results.best]


def annotators(splits: Splits[Any]) -> dict[str, float]:
    """What a student's teacher is told, by hand."""
    assert splits.validation is not None
    names = torch.from_numpy(splits.train.observed.counts().positives)
    slope = fit_slope(torch.from_numpy(splits.validation.true), names)
    return {"preference": round(max(0.0, slope), 3)}


def test_held_out_rows_choose() -> None:
    """By their true labels, or by their one label each; where features say little, a stronger pull."""
    chosen = {}
    for rows, noise in ((400, 1.0), (600, 6.0)):
        splits = features(rows=rows, noise=noise)
        assert splits.validation is not None
        run = train(splits, **LINEAR)
        assert run.result["hyper"] == by_hand(splits, splits.validation.true, **annotators(splits))
        blind = replace(splits, validation=replace(splits.validation, true=None))
        found = train(blind, **{**LINEAR, "epochs": 2}).result["hyper"]
        assert found == by_hand(splits, splits.validation.observed, epochs=2)
        chosen[noise] = train(splits, hyper={"naming": 0.0}, **LINEAR).result["hyper"]["alpha"]
    trials = RollCall.trials(8)["alpha"]
    assert chosen[1.0] < trials[2] < chosen[6.0]


def test_the_run_is_that_of_what_was_chosen() -> None:
    splits = features(noise=3.0)
    run = train(splits, **LINEAR)
    told = train(splits, hyper=run.result["hyper"], **LINEAR)
    assert "hyper" not in told.result
    assert [row["loss"] for row in run.history] == [row["loss"] for row in told.history]
    for a, b in zip(run.classifier.parameters(), told.classifier.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    "settings",
    [
        {"hyper": {"alpha": 0.3, "naming": 0, "preference": 0.2}},
        {"hyper": {"alpha": 0.3, "naming": 0}, "student_annotators": "off"},
        {"hyper": {"alpha": 0.3, "naming": 0}, "student": "off"},
        {"select": "last", "student_annotators": "off"},
        {"method": "em"},
        {"method": onelabel.method("roll-call")},
    ],
)
def test_nothing_is_tried_where_it_was_told_or_cannot_be_judged(settings: dict[str, Any]) -> None:
    assert "hyper" not in train(features(noise=1.0), **{**LINEAR, "epochs": 1, **settings}).result


def skewed(bias: float, *, true: bool = True) -> Splits[Any]:
    """Labels of 3% to 60% of the rows; annotators who take common ones by frequency^bias."""
    rng = np.random.default_rng(0)
    hidden = rng.random((900, 8))
    there = (hidden < np.geomspace(0.03, 0.6, 8)).astype(np.uint8)
    X, there = hidden[there.any(1)].astype(np.float32), there[there.any(1)]
    names = tuple(f"c{i}" for i in range(8))
    cuts = {"train": slice(0, 400), "validation": slice(400, None)}
    parts = {
        name: FeatureDataset(name, names, X[cut], drop_labels(there[cut], scheme="frequency", bias=bias), there[cut])
        for name, cut in cuts.items()
    }
    if not true:
        parts["validation"] = replace(parts["validation"], true=None)
    return Splits("skewed", **parts)


def test_a_teacher_is_told_whom_annotators_prefer() -> None:
    """Where common classes are named first, by true labels of held-out rows, the more the stronger."""
    how = {**LINEAR, "epochs": 1, "hyper": {"alpha": 0.1, "gamma": 0.3, "naming": 0.0}}
    found = [train(skewed(bias), **how).result["hyper"]["preference"] for bias in (-1.0, 0.5, 1.5)]
    assert found == [annotators(skewed(bias))["preference"] for bias in (-1.0, 0.5, 1.5)]
    assert found[0] == 0  # who prefers rare ones changes nothing
    assert 0.05 < found[1] < found[2]
    assert "hyper" not in train(skewed(1.5, true=False), **how).result
    other = train(skewed(1.5), **{**LINEAR, "epochs": 1, "method": "em", "student": "on"})
    assert "hyper" not in other.result


def test_a_network_that_is_fine_tuned_is_told_where_asked() -> None:
    """No linear phase is needed, for nothing is tried."""
    how = {**SMALL, "method": "roll-call", "mode": "finetune", "student": "on", "epochs": 1}
    assert "hyper" not in train(scenes(), **how).result
    asked = train(scenes(), student_annotators="on", **how)
    assert asked.result["hyper"].keys() == {"preference"}


def test_no_held_out_rows() -> None:
    splits = features(noise=1.0)
    assert "hyper" not in train(replace(splits, validation=None), **{**LINEAR, "epochs": 1}).result
    assert splits.validation is not None
    several = splits.validation.take(np.flatnonzero(splits.validation.true.sum(1) > 1))
    several = replace(several, true=None, observed=drop_labels(several.true, positives=2))  # no draw of one label
    assert "hyper" not in train(replace(splits, validation=several), **{**LINEAR, "epochs": 1}).result


def test_a_resumed_run_keeps_what_was_chosen(tmp_path: Path) -> None:
    """Also where it is resumed after the linear phase, whose features are no longer at hand."""
    whole = train(scenes(), out=tmp_path / "whole", method="roll-call", **{**SMALL, "mode": "linearinit"})
    assert whole.result["hyper"]["alpha"] in RollCall.trials(10)["alpha"]
    assert "naming" not in whole.result["hyper"]  # fine-tuning follows
    for at in ("linear", "finetune"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "validate", dying(at))
            with pytest.raises(KeyboardInterrupt):
                train(scenes(), out=tmp_path / at, method="roll-call", **{**SMALL, "mode": "linearinit"})
        settings = {**SMALL, "mode": "linearinit", "resume": True}
        run = train(scenes(), out=tmp_path / at, method="roll-call", **settings)
        assert_same_run(tmp_path / "whole", tmp_path / at)
        assert run.result["hyper"] == whole.result["hyper"]


def exclusive(rows: int = 600, classes: int = 6, seed: int = 0) -> Splits[Any]:
    """One label a row, or now and then two, and a level of the whole row in the features that says nothing."""
    rng = np.random.default_rng(seed)
    first = rng.integers(classes, size=rows)
    true = np.eye(classes, dtype=np.uint8)[first]
    some = rng.random(rows) < 0.1
    true[some, rng.integers(classes, size=rows)[some]] = 1
    X = true @ rng.standard_normal((classes, 12)) + 0.7 * rng.standard_normal((rows, 12))
    X = X * rng.lognormal(0, 0.7, (rows, 1))
    names = tuple(f"c{i}" for i in range(classes))
    cuts = {"train": slice(0, 300), "validation": slice(300, 450), "test": slice(450, None)}
    parts = {
        name: FeatureDataset(name, names, X[cut].astype(np.float32), drop_labels(true[cut]), true[cut])
        for name, cut in cuts.items()
    }
    return Splits("exclusive", **parts)


def test_names_are_believed_where_labels_exclude_each_other(tmp_path: Path) -> None:
    """And the run's classifier, as saved, predicted from and exported, is the one that was chosen."""
    splits = exclusive()
    run = train(splits, out=tmp_path / "run", **LINEAR)
    assert run.result["hyper"]["naming"] > 0
    plain = train(splits, hyper={"naming": 0.0}, **LINEAR)
    assert run.result["plain"]["test_mAP"] > plain.result["plain"]["test_mAP"] + 1
    head = run.classifier.head
    assert isinstance(head, NamingHead)
    assert splits.test is not None
    outputs = torch.from_numpy(splits.test.X) @ head.weight.T + head.bias
    wanted = with_naming(outputs, run.result["hyper"]["naming"])
    X = torch.from_numpy(splits.test.X)
    with torch.no_grad():
        torch.testing.assert_close(run.classifier(X), wanted)
        loaded = Run.load(tmp_path / "run")
        assert isinstance(loaded.classifier.head, NamingHead)
        torch.testing.assert_close(loaded.classifier(X), wanted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "validate", dying("linear"))
        with pytest.raises(KeyboardInterrupt):
            train(splits, out=tmp_path / "cut", **LINEAR)
    train(splits, out=tmp_path / "cut", resume=True, **LINEAR)
    assert_same_run(tmp_path / "run", tmp_path / "cut")
    scores = np.load(tmp_path / "run" / "scores-test.npy")
    np.testing.assert_allclose(scores, torch.sigmoid(wanted).detach().numpy(), atol=1e-3)


@pytest.mark.parametrize(("name", "hyper"), [("an", {}), ("roll-call", {}), ("roll-call", {"naming": 0.5})])
def test_what_a_method_did_to_the_outputs_ends_with_it(name: str, hyper: dict[str, float]) -> None:
    """The weights of a linear head go on, with the share that the new method has."""
    old = NamingHead(7, 10, share=1.0)
    model = Classifier(torch.nn.Identity(), old, num_classes=10)
    config = TrainConfig(method=name, hyper=hyper)
    fresh_method(config, None, scenes(), model)
    assert type(model.head) is (NamingHead if hyper else torch.nn.Linear)
    assert torch.equal(model.head.weight, old.weight)
    assert torch.equal(model.head.bias, old.bias)
    if hyper:
        assert model.head.share == 0.5


class Scaled(torch.nn.Linear):
    """A head of somebody's own, with a parameter and a buffer beside the linear ones."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__(width, classes)
        self.scale = torch.nn.Parameter(torch.ones(()))
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("passing", torch.zeros(()), persistent=False)


class Own(EM):
    def head(self, feature_dim: int, num_classes: int) -> Scaled:
        return Scaled(feature_dim, num_classes)


def test_a_head_of_ones_own_begins_anew_and_goes_on() -> None:
    model = Classifier(torch.nn.Identity(), torch.nn.Linear(7, 10), num_classes=10)
    config, given = TrainConfig(method="em"), Own()
    fresh_method(config, given, scenes(), model)
    first = model.head
    assert isinstance(first, Scaled)
    first.seen.fill_(3.0)
    fresh_method(config, given, scenes(), model)
    assert model.head is not first
    assert torch.equal(model.head.weight, first.weight)
    assert model.head.seen == 3
    with pytest.raises(ValueError, match="no linear probe"):
        refuse("em", given, (7, 10))


def dying(phase: str) -> Any:
    """`validate`, until the second epoch of a phase."""

    def until(session: Any, *args: Any) -> Any:
        if session.phase.name == phase and args[2] == 1:
            raise KeyboardInterrupt
        return validate(session, *args)

    return until
