"""Values and derivatives of the curves against the formulas as printed, differentiated by autograd in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from onelabel.kernels import blocked
from onelabel.kernels import form as f
from onelabel.kernels.form import Curve, Form, focal, mix, nll

P = Callable[[Tensor], Tensor]


def _nll(p: Tensor) -> Tensor:
    return -torch.log(p)


def _robust(p: Tensor, q2: float, q3: float, w: float, b: float, mu: float, sigma: float) -> Tensor:
    k = torch.sigmoid(w * p + b).detach()
    v = torch.exp(-((p - mu) ** 2) / (2 * sigma**2)).detach()
    return v * (k * (1 - p**q2) / q2 + (1 - k) * (1 - (1 - p) ** q3) / q3)


def _shifted(p: Tensor, gamma: float, m: float) -> Tensor:
    p_m = (p - m).clamp(min=0)
    return p_m**gamma * -torch.log(1 - p_m)


def _split(p: Tensor, tau: float, above: Tensor, below: Tensor) -> Tensor:
    return torch.where(p > tau, above, below)


CASES: dict[str, tuple[Curve, Callable[[Tensor, Tensor], Tensor]]] = {
    "plain": (nll(), lambda g, p: _nll(p)),
    "plain mirrored": (nll().mirrored(), lambda g, p: _nll(1 - p)),
    "weighted": (nll(0.3), lambda g, p: 0.3 * _nll(p)),
    "eps": (nll(0.3, eps=1e-2), lambda g, p: 0.3 * _nll(p + 1e-2)),
    "mix": (mix(0.2, 0.5, 0.7), lambda g, p: 0.7 * (0.9 * _nll(p) + 0.1 * _nll(1 - p))),
    "mix mirrored": (mix(0.2, 1.0).mirrored(), lambda g, p: 0.8 * _nll(1 - p) + 0.2 * _nll(p)),
    "mix eps": (mix(0.2, 0.5, eps=1e-2), lambda g, p: 0.9 * _nll(p + 1e-2) + 0.1 * _nll(1 - p + 1e-2)),
    "entropy": (Curve(f.ENTROPY, (-0.2,)), lambda g, p: -0.2 * (p * _nll(p) + (1 - p) * _nll(1 - p))),
    "entropy eps": (
        Curve(f.ENTROPY_EPS, (2.0, 1e-2)),
        lambda g, p: 2 * (p * _nll(p + 1e-2) + (1 - p) * _nll(1 - p + 1e-2)),
    ),
    "focal": (focal(2.0, 0.25), lambda g, p: 0.25 * (1 - p) ** 2 * _nll(p)),
    "focal mirrored": (focal(1.5).mirrored(), lambda g, p: p**1.5 * _nll(1 - p)),
    "focal detached": (focal(2.0, detached=True), lambda g, p: ((1 - p) ** 2).detach() * _nll(p)),
    "margin": (
        Curve(f.MARGIN, (2.0, 1.0)),
        lambda g, p: (1 - torch.sigmoid(g - 1)) ** 2 * _nll(torch.sigmoid(g - 1)),
    ),
    "shifted": (Curve(f.SHIFTED, (2.0, 0.2)), lambda g, p: _shifted(p, 2.0, 0.2)),
    "shifted by 0": (Curve(f.SHIFTED, (4.0, 0.0)), lambda g, p: _shifted(p, 4.0, 0.0)),
    "shifted detached": (
        Curve(f.SHIFTED_DETACHED, (2.0, 0.2)),
        lambda g, p: ((p - 0.2).clamp(min=0) ** 2).detach() * -torch.log(1 - (p - 0.2).clamp(min=0)),
    ),
    "shifted fourth": (Curve(f.SHIFTED_FOURTH, (4.0, 0.05)), lambda g, p: _shifted(p, 4.0, 0.05)),
    "hill": (Curve(f.HILL, (1.5,)), lambda g, p: (1.5 - p) * p**2),
    "threshold": (
        Curve(f.THRESHOLD, (0.6, 1.0, 1.0, 0.1, 2.0, 0.5)),
        lambda g, p: _split(p, 0.6, 0.1 * (1 - p) * _nll(p), 0.5 * p**2 * _nll(1 - p)),
    ),
    "threshold closed": (
        Curve(f.THRESHOLD, (0.6, 0.0, 1.0, 0.1, 2.0, 0.5)),
        lambda g, p: 0.5 * p**2 * _nll(1 - p),
    ),
    "threshold, one curve": (
        Curve(f.THRESHOLD_SAME, (0.6, 1.0, 2.0)),
        lambda g, p: _split(p, 0.6, (1 - p) ** 2 * _nll(p), p**2 * _nll(1 - p)),
    ),
    "threshold, hill": (
        Curve(f.THRESHOLD_HILL, (0.6, 1.0, 2.0, 1.0, 1.5)),
        lambda g, p: _split(p, 0.6, (1 - p) ** 2 * _nll(p), (1.5 - p) * p**2),
    ),
    "generalised": (Curve(f.GENERALISED, (0.3,)), lambda g, p: (1 - p**0.3) / 0.3),
    "generalised at 0": (Curve(f.GENERALISED, (0.0,)), lambda g, p: _nll(p)),
    "robust": (
        Curve(f.ROBUST, (0.01, 1.5, 10.0, -8.0, 0.8, 0.5)),
        lambda g, p: _robust(p, 0.01, 1.5, 10.0, -8.0, 0.8, 0.5),
    ),
    "robust, q3 = 1": (
        Curve(f.ROBUST_LINEAR, (0.01, 1.0, 2.0, -2.0, 0.5, 2.0)),
        lambda g, p: _robust(p, 0.01, 1.0, 2.0, -2.0, 0.5, 2.0),
    ),
    "probability": (Curve(f.PROBABILITY, (3.0,)), lambda g, p: 3 * p),
    "complement": (Curve(f.PROBABILITY, (3.0,)).mirrored(), lambda g, p: 3 * (1 - p)),
    "nothing": (Curve(), lambda g, p: 0 * p),
}


def evaluate(form: Form, g: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    value, slope = blocked.evaluate(g, z, form, scale=1.0)
    assert value is not None
    assert slope is not None
    return value, slope


@pytest.mark.parametrize("place", ["positive", "unknown", "negative"])
@pytest.mark.parametrize("case", CASES)
def test_curve(case: str, place: str) -> None:
    curve, formula = CASES[case]
    g = torch.linspace(-6, 6, 97, dtype=torch.float64).reshape(1, -1)
    z = torch.full(g.shape, {"positive": 1, "unknown": 0, "negative": -1}[place], dtype=torch.int8)
    form = Form(**{"positive": Curve(), "unknown": Curve(), "negative": Curve(), place: curve})
    live = g.clone().requires_grad_()
    want = formula(live, torch.sigmoid(live)).sum()
    (want_slope,) = torch.autograd.grad(want, live)
    value, slope = evaluate(form, g, z)
    assert value.item() == pytest.approx(want.item(), abs=1e-9)
    assert torch.allclose(slope, want_slope, atol=1e-10)


@pytest.mark.parametrize("case", CASES)
def test_finite_at_the_ends(case: str) -> None:
    g = torch.tensor([[-100.0, -60.0, 60.0, 100.0]])
    curve, _ = CASES[case]
    for z in (1, 0, -1):
        value, slope = evaluate(Form(curve, curve, curve), g, torch.full(g.shape, z, dtype=torch.int8))
        assert torch.isfinite(value)
        assert torch.isfinite(slope).all()


def test_numbers_may_differ_between_models() -> None:
    g, z = torch.randn(3, 4, 5, dtype=torch.float64), torch.randint(-1, 2, (4, 5), dtype=torch.int8)
    alpha = torch.tensor([0.1, 0.5, 2.0], dtype=torch.float64)
    value, slope = evaluate(Form(nll(), Curve(f.ENTROPY, (alpha,)), nll().mirrored()), g, z)
    for m in range(3):
        one, one_slope = evaluate(Form(nll(), Curve(f.ENTROPY, (alpha[m].item(),)), nll().mirrored()), g[m], z)
        assert torch.allclose(value[m], one)
        assert torch.allclose(slope[m], one_slope)


def test_rows_target_and_pull() -> None:
    g = torch.randn(4, 6, dtype=torch.float64)
    z = torch.randint(-1, 2, (4, 6), dtype=torch.int8)
    rows = torch.rand(3, 4, dtype=torch.float64)
    target = torch.where(torch.rand(4, 6) < 0.5, torch.rand(4, 6), -1.0).double()
    live = g.clone().requires_grad_()
    p = torch.sigmoid(live)
    unknown = torch.where(target >= 0, 0.7 * (-target * p.log() - (1 - target) * (1 - p).log()), p)
    parts = (z > 0, -p.log()), (z == 0, unknown), (z < 0, -(1 - p).log())
    want = sum((rows[i][:, None] * mask * part).sum() for i, (mask, part) in enumerate(parts))
    assert isinstance(want, Tensor)
    (slope,) = torch.autograd.grad(want + 0.3 * torch.sigmoid(live).sum(), live)
    more: dict[str, Any] = {"rows": rows, "target": target, "target_weight": 0.7, "pull": torch.tensor(0.3)}
    form = Form(nll(), Curve(f.PROBABILITY, (1.0,)), nll().mirrored(), **more)
    value, got = evaluate(form, g, z)
    assert value.item() == pytest.approx(want.item())
    assert torch.allclose(got, slope)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(3, 100_001), (700, 701), (1, 1), (2, 300, 400)])
def test_blocks_change_nothing(shape: tuple[int, ...], threads: int) -> None:
    g = torch.randn(shape)
    z = torch.randint(-1, 2, shape[-2:], dtype=torch.int8) * (torch.rand(shape[-2:]) < 0.01)
    form = Form(nll(), nll(0.5).mirrored(), nll().mirrored())
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        value, slope = evaluate(form, g, z)
    finally:
        torch.set_num_threads(before)
    p = torch.sigmoid(g.double())
    entries = torch.where(z > 0, -p.log(), torch.where(z < 0, -(1 - p).log(), -0.5 * (1 - p).log()))
    assert torch.allclose(value.double(), entries.sum((-2, -1)), rtol=1e-5)
    want = torch.where(z > 0, p - 1, torch.where(z < 0, p, 0.5 * p))
    assert torch.allclose(slope.double(), want, atol=1e-6)
