"""On a GPU: the captured step is the eager one, and preparing it changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from training_workers import HYPER, SMALL, scenes

from onelabel.models import build_classifier
from onelabel.training import train
from onelabel.training.step import Step

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
GPU: dict[str, Any] = {**SMALL, "device": "cuda", "mode": "finetune", "precision": "32-true", "epochs": 2}


@pytest.mark.parametrize("method", ["an", "em", "gr", "role", "em-apl", "ll-cp", "splc", "pseudo-negative", "lasd"])
def test_captured_equals_eager(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last batch of 5 runs eagerly in between, so both kinds of update share their state."""
    monkeypatch.setenv("ONELABEL_QUIET", "1")
    runs = {}
    for graph in ("off", "auto"):
        torch.manual_seed(3)
        model = build_classifier(10, backbone="small-cnn")
        settings = {**GPU, "hyper": HYPER.get(method, {}), "compile": "off", "cuda_graph": graph, "ema": 0.9}
        runs[graph] = train(scenes(), method=method, model=model, **settings)
    if method in ("pseudo-negative", "lasd"):  # their draws come in another order from a captured generator
        return
    # An entry whose p lies at SPLC's threshold goes to the other side by rounding alone and jumps to another curve, and
    # APL takes or leaves a label by its rank: 1.5e-3 and 2.2e-3 were seen on an H200, and weights changed by 1e-4 move
    # both by 4e-3 on a CPU. That a replay follows its schedule to 3e-6 is shown by benchmarks/gpu_check.py.
    rel = 1e-2 if method in ("splc", "em-apl") else 1e-3
    for eager, captured in zip(runs["off"].history, runs["auto"].history, strict=True):
        assert captured["loss"] == pytest.approx(eager["loss"], rel=rel, abs=1e-5)


@pytest.mark.parametrize("method", ["em", "role", "ll-cp"])
def test_capture_happens_and_changes_nothing(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def held(step: Step) -> dict[str, torch.Tensor]:
        state = {**step.network.state_dict(), **{f"method {k}": v for k, v in step.criterion.state_dict().items()}}
        return {k: v.clone() for k, v in {**state, **step.buffers(), "cursor": step.cursor}.items()}

    prepare = Step._prepare

    def watched(self: Step) -> None:
        before = held(self)
        random = torch.cuda.get_rng_state()
        prepare(self)
        seen["graph"] = self.graph
        seen["changed"] = [name for name, value in held(self).items() if not torch.equal(value, before[name])]
        seen["random"] = torch.equal(random, torch.cuda.get_rng_state())
        seen["zero"] = all(not t.any() for t in self._optimizer_state())

    monkeypatch.setattr(Step, "_prepare", watched)
    train(scenes(), method=method, hyper=HYPER.get(method, {}), **{**GPU, "compile": "off"})
    assert seen["graph"] is not None, "the update could not be captured"
    assert not seen["changed"]
    assert seen["random"]
    assert seen["zero"]


def test_a_head_with_a_share_of_naming_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONELABEL_QUIET", "1")
    given = {**GPU, "mode": "linear", "hyper": {"naming": 0.5, "alpha": 0.1}}
    runs = {
        graph: train(scenes(), method="roll-call", seed=1, **{**given, "cuda_graph": graph})
        for graph in ("off", "auto")
    }
    off, auto = ([epoch["loss"] for epoch in run.history] for run in runs.values())
    assert auto == pytest.approx(off, rel=1e-3)
    assert {float(run.classifier.head.share) for run in runs.values()} == {0.5}
