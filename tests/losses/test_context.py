"""What the other classes say: against scipy, of labels that keep company and of such that do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import brentq, minimize
from torch import Tensor

from onelabel.losses import context
from onelabel.losses.context import Context, fit_context


def company(rows: int, *, strength: float, seed: int = 0, classes: int = 5) -> tuple[Tensor, Tensor]:
    """Logits, and labels of which class 1 comes with class 0 by `strength`, beyond what the logits say."""
    rng = np.random.default_rng(seed)
    z = rng.normal(-1, 4, (rows, classes))
    true = rng.random((rows, classes)) < 1 / (1 + np.exp(-z))
    with_it = z[:, 1] + strength * (true[:, 0] - 0.5)
    true[:, 1] = rng.random(rows) < 1 / (1 + np.exp(-with_it))
    return torch.from_numpy(z), torch.from_numpy(true.astype(np.float64))


def likelihood(z: Tensor, y: Tensor) -> float:
    return float((y * torch.nn.functional.logsigmoid(z) + (1 - y) * torch.nn.functional.logsigmoid(-z)).sum() / len(z))


@pytest.mark.parametrize("penalty", [0.1, 3.0, 100.0])
@pytest.mark.parametrize("counted", [False, True])
def test_the_regression_is_scipys_of_each_class(penalty: float, counted: bool) -> None:
    z, y = company(120, strength=3.0)
    z += 1.5  # more labels than there are, which c takes back
    r = torch.from_numpy(np.random.default_rng(1).random(z.shape)) if counted else torch.ones_like(z)
    found = context._fit(z, y, r, penalty)
    p = 1 / (1 + np.exp(-z.numpy()))
    level = brentq(lambda c: float((r * (torch.sigmoid(z + c) - y)).sum()), -10, 10)
    p -= p.mean(0)
    for c in range(5):
        others = [m for m in range(5) if m != c]

        def cost(w: np.ndarray, c: int = c, others: list[int] = others) -> float:
            told = z[:, c].numpy() + level + p[:, others] @ w[:4] + w[4]
            chance = np.logaddexp(0, told) - y[:, c].numpy() * told
            return float((r[:, c].numpy() * chance).sum() + penalty * (w**2).sum())

        wanted = minimize(cost, np.zeros(5), tol=1e-10).x
        np.testing.assert_allclose(found.weights[others, c], wanted[:4], atol=2e-4)
        assert float(found.shift[c]) == pytest.approx(wanted[4] + level, abs=2e-4)
    assert not found.weights.diagonal().any()


def test_what_counts_for_nothing_says_nothing() -> None:
    z, y = company(400, strength=4.0)
    r = torch.ones_like(z)
    r[200:, 1] = 0
    other = y.clone()
    other[200:, 1] = 1 - other[200:, 1]
    one, two = fit_context(z, y, counts=r), fit_context(z, other, counts=r)
    assert one is not None
    assert two is not None
    torch.testing.assert_close(one.weights, two.weights)
    torch.testing.assert_close(one.shift, two.shift)
    every = fit_context(z, y)
    assert every is not None
    assert (every.weights - one.weights).abs().max() > 0.1


def test_a_level_that_is_off_is_no_company() -> None:
    """All logits too high by the same: what is said is as without, and as little is made of labels by themselves."""
    z, y = company(400, strength=4.0)
    one, off = fit_context(z, y), fit_context(z + 2, y)
    assert one is not None
    assert off is not None
    assert float(off.shift.mean()) == pytest.approx(float(one.shift.mean()) - 2, abs=0.3)
    made = [fit_context(z + 2, y) for z, y in (company(200, strength=0.0, seed=seed) for seed in range(10))]
    assert sum(found is not None for found in made) <= 6


def test_company_is_learned_and_helps_elsewhere() -> None:
    z, y = company(800, strength=4.0)
    found = fit_context(z, y)
    assert found is not None
    assert found.weights[0, 1] > 1.5  # of p, which knows less of class 0 than its label does
    rest = found.weights.clone()
    rest[0, 1] = rest[1, 0] = 0
    assert rest.abs().max() < 0.7 * found.weights[0, 1]
    new_z, new_y = company(4000, strength=4.0, seed=1)
    assert likelihood(found.logits(new_z), new_y) > likelihood(new_z, new_y) + 0.02


def test_where_labels_come_by_themselves_little_is_made_of_it() -> None:
    """Nothing in half of the draws, and in the others what costs a hundredth of a nat a row."""
    chosen = [fit_context(*company(200, strength=0.0, seed=seed)) for seed in range(20)]
    made = [found for found in chosen if found is not None]
    assert len(made) <= 12
    new_z, new_y = company(4000, strength=0.0, seed=99)
    lost = [likelihood(new_z, new_y) - likelihood(found.logits(new_z), new_y) for found in made]
    assert np.mean(lost) < 0.015
    assert max(lost) < 0.04


def test_classes_may_come_in_any_order() -> None:
    z, y = company(300, strength=4.0)
    order = torch.tensor([3, 1, 4, 0, 2])
    one, other = fit_context(z, y), fit_context(z[:, order], y[:, order])
    assert one is not None
    assert other is not None
    torch.testing.assert_close(one.logits(z)[:, order], other.logits(z[:, order]), atol=1e-3, rtol=0)


@pytest.mark.parametrize("strength", [0.0, 4.0])
def test_strong_penalties_come_first_and_two_after_the_best_end_it(
    strength: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    fit = context._fit

    def spy(z: Tensor, y: Tensor, r: Tensor, penalty: float, **how: Any) -> Context:
        asked.append(penalty)
        return fit(z, y, r, penalty, **how)

    monkeypatch.setattr(context, "_fit", spy)
    found = fit_context(*company(100 if strength == 0 else 400, strength=strength, seed=5))
    assert (found is None) == (strength == 0)
    tried = asked[: len(asked) // context.FOLDS * context.FOLDS : context.FOLDS]
    assert tried == list(context.PENALTIES[: len(tried)])
    if found is None:
        assert len(asked) == context.FOLDS * len(context.PENALTIES)
    else:
        assert len(tried) == min(tried.index(asked[-1]) + 3, len(context.PENALTIES))


@pytest.mark.parametrize(("rows", "classes"), [(9, 3), (20, 21), (0, 4)])
def test_too_few_rows_say_nothing(rows: int, classes: int) -> None:
    z = torch.randn(rows, classes)
    assert fit_context(z, (torch.rand(rows, classes) < 0.3).float()) is None


def test_classes_never_or_always_there_stay_finite() -> None:
    z, y = company(100, strength=4.0)
    y[:, 2], y[:, 3] = 0, 1
    found = fit_context(z, y)
    assert found is not None
    assert found.logits(z).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_logits_of_every_precision(dtype: torch.dtype) -> None:
    z, y = company(200, strength=4.0)
    found = fit_context(z, y)
    assert found is not None
    told = found.logits((100 * z).clamp(-100, 100).to(dtype))
    assert told.dtype == dtype
    assert told.isfinite().all()
    torch.testing.assert_close(found.logits(z.to(dtype)).double(), found.logits(z), atol=0.1, rtol=0.02)
