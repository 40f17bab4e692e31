"""What training records equals what plain loops count, changes no number, and survives an interruption."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_folders import assert_same_run
from training_workers import HYPER, SMALL, scenes

from onelabel.labels import Labels
from onelabel.training import Run, TrainConfig, train
from onelabel.training.recording import (
    EDGES,
    FILE,
    GROUPS,
    LABELS,
    Recorder,
    Recording,
    read_labels,
    wanted,
)


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONELABEL_QUIET", "1")


def test_counts_are_those_of_a_plain_loop() -> None:
    splits = scenes(n_train=40, n_validation=10, n_test=0)
    known = splits.train.observed.with_updates([0, 1], [2, 3], [-1, -1])
    splits = replace(splits, train=replace(splits.train, observed=known))
    recorder = Recorder(splits, torch.device("cpu"))
    logits = torch.randn(40, 10, generator=torch.Generator().manual_seed(1)) * 8
    observed, true = torch.from_numpy(known.to_dense()), torch.from_numpy(splits.train.true)
    for rows in (slice(0, 15), slice(15, 40)):
        recorder.add(logits[rows], observed[rows], true[rows])
    recorder.end_epoch("finetune", 0)
    found = recorder.result()
    assert found is not None
    expected: dict[str, np.ndarray] = {g: np.zeros((10, len(EDGES) + 1), int) for g in GROUPS}
    percent = {g: np.zeros((10, 100), int) for g in GROUPS}
    losses = []
    for i in range(40):
        for c in range(10):
            z, y, g = int(observed[i, c]), int(true[i, c]), float(logits[i, c])
            group = "observed positive" if z > 0 else "observed negative" if z < 0 else None
            group = group or ("unknown positive" if y else "unknown negative")
            expected[group][c, sum(edge <= g for edge in EDGES.astype(np.float32))] += 1
            p = 1 / (1 + np.exp(-g))
            percent[group][c, min(int(p * 100), 99)] += 1
            losses += [-np.log(p)] if z > 0 else []
    for group in GROUPS:
        np.testing.assert_array_equal(found.counts(group)[0], expected[group])
        np.testing.assert_array_equal(found.by_p(group)[0], percent[group])
    np.testing.assert_array_equal(
        found.counts("unknown"), found.counts("unknown positive") + found.counts("unknown negative")
    )
    np.testing.assert_allclose(found.positive_loss, [np.mean(losses)], rtol=1e-6)


def test_a_training_is_recorded_from_its_own_steps(tmp_path: Path) -> None:
    """Every entry is counted once an epoch; with IU the recorded loss is the training loss itself."""
    splits = scenes()
    settings = {**SMALL, "mode": "linearinit", "augment": "none"}
    run = train(splits, method="iu", out=tmp_path / "run", **settings)
    found = Recording.load(tmp_path / "run")
    assert found is not None
    assert run.recording is not None
    observed, true = splits.train.observed.to_dense(), splits.train.true
    counted = {
        "observed positive": (observed > 0).sum(0),
        "unknown positive": ((observed == 0) & (true == 1)).sum(0),
        "unknown negative": ((observed == 0) & (true == 0)).sum(0),
        "observed negative": np.zeros(10),
    }
    assert found.epochs == len(run.history) == 5
    assert found.arrays["phase"].tolist() == [0, 0, 1, 1, 1]
    assert found.arrays["epoch"].tolist() == [0, 1, 0, 1, 2]
    for group, each in counted.items():
        np.testing.assert_array_equal(found.counts(group).sum(2), np.tile(each, (5, 1)))
    np.testing.assert_allclose(found.positive_loss / 10, [row["loss"] for row in run.history], rtol=1e-5)
    for name, value in run.recording.arrays.items():
        np.testing.assert_array_equal(value, found.arrays[name])
    # validation: the best epoch's scores are in the folder
    best = 2 + run.result["best_epoch"]
    p = run.scores["validation"].astype(np.float64)
    positive = (splits.validation.observed.to_dense() > 0)[..., None] & (
        np.minimum((p * 100).astype(int), 99)[..., None] == np.arange(100)
    )
    np.testing.assert_array_equal(found.by_p("observed positive", "validation")[best], positive.sum(0))


def test_recording_changes_no_number(tmp_path: Path) -> None:
    runs = [
        train(scenes(), method="role", hyper=HYPER["role"], out=tmp_path / record, record=record, **SMALL)
        for record in ("off", "on")
    ]
    assert_same_run(tmp_path / "off", tmp_path / "on", recording=False)
    assert not (tmp_path / "off" / FILE).exists()
    assert not (tmp_path / "off" / LABELS).exists()
    assert runs[0].recording is None
    assert Run.load(tmp_path / "on").recording is not None


def test_interrupted_recording_goes_on_bit_by_bit(tmp_path: Path) -> None:
    from onelabel.training.step import Step

    settings = {**SMALL, "mode": "linearinit", "record": "on"}
    train(scenes(), method="gr", out=tmp_path / "whole", **settings)
    update, calls = Step.__call__, [0]

    def interrupted(self: Step, sizes: tuple[int, ...]) -> None:
        calls[0] += 1
        if calls[0] in (7, 26, 33):  # in both phases
            os.kill(os.getpid(), signal.SIGINT)
        update(self, sizes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Step, "__call__", interrupted)
        for resume in (False, True, True):
            with pytest.raises(KeyboardInterrupt):
                train(scenes(), method="gr", out=tmp_path / "cut", resume=resume, **settings)
    train(scenes(), method="gr", out=tmp_path / "cut", resume=True, **settings)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def test_a_recording_of_something_else_is_refused() -> None:
    recorder, again = (Recorder(scenes(), torch.device("cpu")) for _ in range(2))
    recorder.end_epoch("finetune", 0)
    state = recorder.state_dict()
    again.load_state_dict(state)
    for name in recorder.stacked():
        for wrong in ({k: v for k, v in state.items() if k != name}, state | {name: state[name][..., None]}):
            with pytest.raises(ValueError, match="not what was counted every epoch"):
                again.load_state_dict(wrong)


@pytest.mark.parametrize("truth", [True, False])
def test_labels_come_back(tmp_path: Path, truth: bool) -> None:
    splits = scenes()
    if not truth:
        parts: dict[str, Any] = {name: replace(part, true=None) for name, part in splits.parts.items()}
        splits = replace(splits, **parts)
    train(splits, method="an", out=tmp_path / "run", **{**SMALL, "epochs": 1})
    found = read_labels(tmp_path / "run")
    assert set(found) == {"train", "validation", "test"}
    for name, part in splits.parts.items():
        np.testing.assert_array_equal(found[name].observed, part.observed.to_dense())
        assert (found[name].true is None) == (not truth)
        if truth:
            np.testing.assert_array_equal(found[name].true, part.true)
    recording = Recording.load(tmp_path / "run")
    assert recording is not None
    assert recording.true["train"] is truth
    if not truth:
        assert recording.counts("unknown positive").sum() == 0
        assert recording.counts("unknown").sum() == 149 * 10 - 149


def test_auto_records_what_is_small_and_kept() -> None:
    auto = TrainConfig(record="auto")
    assert wanted(auto, 5_000, 20, kept=True)
    assert not wanted(auto, 5_000, 20, kept=False)
    assert not wanted(auto, 1_000_000, 80, kept=True)
    assert not wanted(auto, 100, 2_001, kept=True)
    assert wanted(TrainConfig(record="on"), 1_000_000, 80, kept=False)
    assert not wanted(TrainConfig(record="off"), 10, 2, kept=True)


def test_full_labels_have_no_unknown(tmp_path: Path) -> None:
    splits = scenes()
    full = replace(splits, train=replace(splits.train, observed=Labels.from_true(splits.train.true)))
    train(full, method="bce", out=tmp_path / "run", **{**SMALL, "epochs": 1})
    found = Recording.load(tmp_path / "run")
    assert found is not None
    assert found.counts("unknown").sum() == 0
    assert found.counts("observed negative").sum() == (splits.train.true == 0).sum()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("graph", "compiled"), [("off", "off"), ("auto", "off"), ("auto", "auto")])
def test_on_a_gpu_every_entry_is_counted_once(tmp_path: Path, graph: str, compiled: str) -> None:
    """Warming up and capturing leave no trace in the counters."""
    splits = scenes()
    settings = {**SMALL, "device": "cuda", "cuda_graph": graph, "compile": compiled, "record": "on", "augment": "none"}
    run = train(splits, method="iu", out=tmp_path / "run", **settings)
    found = run.recording
    assert found is not None
    observed = splits.train.observed.to_dense()
    np.testing.assert_array_equal(found.counts("observed positive").sum(2), np.tile((observed > 0).sum(0), (3, 1)))
    np.testing.assert_array_equal(found.counts("unknown").sum(2), np.tile((observed == 0).sum(0), (3, 1)))
    np.testing.assert_allclose(found.positive_loss / 10, [row["loss"] for row in run.history], rtol=1e-4)
