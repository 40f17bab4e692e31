"""Which precision `auto` means, and that half of it trains to the same place on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from training_workers import SMALL, scenes

from onelabel.training import Run, evaluate, loop, machine, train
from onelabel.training.config import TrainConfig
from onelabel.training.machine import make_fabric, precision_of


@pytest.mark.parametrize(
    ("found", "size", "given", "precision"),
    [
        ({"avx512_bf16": True}, 448, "auto", "bf16-mixed"),
        ({"amx_bf16": True}, 224, "auto", "bf16-mixed"),
        ({"avx512_bf16": True}, 32, "auto", "32-true"),
        ({"avx512_bf16": False, "avx2": True}, 448, "auto", "32-true"),
        ({"avx512_bf16": True}, 448, "32-true", "32-true"),
        ({}, 448, "bf16-mixed", "bf16-mixed"),
        (None, 448, "auto", "32-true"),
    ],
)
def test_half_precision_where_the_cpu_has_it(
    found: dict[str, bool] | None, size: int, given: Any, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if found is None:  # as torch was before it could say
        monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    else:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found, raising=False)
    fabric = make_fabric(TrainConfig(device="cpu", size=size, precision=given))
    assert precision_of(fabric) == precision


def able(yes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": yes}, raising=False)


@pytest.mark.parametrize("first", [True, False])
def test_a_run_goes_on_and_is_scored_in_the_precision_it_was_begun_in(
    first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the machine it has moved to would take another by itself."""
    monkeypatch.setenv("ONELABEL_QUIET", "1")
    monkeypatch.setattr(machine, "LARGE", 8)
    given: dict[str, Any] = {**SMALL, "method": "em", "mode": "finetune", "epochs": 2}
    able(first, monkeypatch)
    whole = train(scenes(), out=tmp_path / "whole", **given)
    assert whole.config.precision == ("bf16-mixed" if first else "32-true")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "finish", dying)
        with pytest.raises(KeyboardInterrupt):
            train(scenes(), out=tmp_path / "cut", **given)
    able(not first, monkeypatch)
    cut = train(scenes(), out=tmp_path / "cut", resume=True, **given)
    assert cut.config.precision == whole.config.precision
    assert [epoch["loss"] for epoch in cut.history] == [epoch["loss"] for epoch in whole.history]
    able(True, monkeypatch)  # where there is no bfloat16 it is float32, and said
    scored = evaluate(Run.load(tmp_path / "cut"), scenes(), device="cpu", batch_size=64)
    np.testing.assert_array_equal(scored["scores"], cut.scores["test"])


def dying(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_features_have_a_head_in_float32() -> None:
    assert precision_of(make_fabric(TrainConfig(device="cpu", mode="linear", size=448))) == "32-true"


def test_where_there_is_no_half_it_is_scored_in_whole_and_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(scenes(), method="em", **{**SMALL, "mode": "finetune", "epochs": 1, "precision": "bf16-mixed"})
    able(False, monkeypatch)
    capsys.readouterr()
    evaluate(run, scenes(), device="cpu")
    assert "scored in float32" in capsys.readouterr().err


def test_half_precision_learns_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real bfloat16 products (emulated where the CPU has none); logits, losses and weights stay float32."""
    monkeypatch.setenv("ONELABEL_QUIET", "1")
    given: dict[str, Any] = {**SMALL, "mode": "finetune", "seed": 1}
    runs = {name: train(scenes(), method="em", precision=name, **given) for name in ("32-true", "bf16-mixed")}
    whole, half = ([epoch["loss"] for epoch in run.history] for run in runs.values())
    np.testing.assert_allclose(half, whole, rtol=0.05)
    assert half != whole, "nothing was computed in bfloat16"
    assert {p.dtype for p in runs["bf16-mixed"].classifier.parameters()} == {torch.float32}
