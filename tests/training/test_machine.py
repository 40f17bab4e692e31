"""Which precision `auto` means, and that half of it trains to the same place on a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from training_workers import SMALL, scenes

from onelabel.training import train
from onelabel.training.config import TrainConfig
from onelabel.training.machine import make_fabric


@pytest.mark.parametrize(
    ("able", "size", "given", "precision"),
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
    able: dict[str, bool] | None, size: int, given: Any, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if able is None:  # as torch was before it could say
        monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    else:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able, raising=False)
    fabric = make_fabric(TrainConfig(device="cpu", size=size, precision=given))
    assert fabric._precision.precision == precision


def test_half_precision_learns_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real bfloat16 products (emulated where the CPU has none); logits, losses and weights stay float32."""
    monkeypatch.setenv("ONELABEL_QUIET", "1")
    given: dict[str, Any] = {**SMALL, "mode": "finetune", "seed": 1}
    runs = {name: train(scenes(), method="em", precision=name, **given) for name in ("32-true", "bf16-mixed")}
    whole, half = ([epoch["loss"] for epoch in run.history] for run in runs.values())
    np.testing.assert_allclose(half, whole, rtol=0.05)
    assert half != whole, "nothing was computed in bfloat16"
    assert {p.dtype for p in runs["bf16-mixed"].classifier.parameters()} == {torch.float32}
