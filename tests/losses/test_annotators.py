"""What annotators prefer: against scipy, of draws whose weights are known, and what it leaves open."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor

from onelabel.labels import drop_labels
from onelabel.losses.annotators import SLOPE, chances, fit_preferences, fit_slope, left_open


def label_sets(rows: int, classes: int = 5, *, seed: int = 0, chance: float = 0.4) -> Tensor:
    rng = np.random.default_rng(seed)
    true = rng.random((rows, classes)) < chance
    return torch.from_numpy(true.astype(np.float64))


def test_the_likelihood_is_scipys_by_plain_loops() -> None:
    true, names = label_sets(60), torch.tensor([50, 20, 20, 8, 2])
    rows = [np.flatnonzero(row) for row in true.numpy() if row.any()]

    def cost(log_w: np.ndarray) -> float:
        named = np.zeros(5)
        for row in rows:
            total = sum(np.exp(log_w[m]) for m in row)
            for c in row:
                named[c] += np.exp(log_w[c]) / total / len(rows)
        return float((log_w**2).sum() / 2 - (names.numpy() / 100 * len(rows) * np.log(named)).sum())

    wanted = np.exp(minimize(cost, np.zeros(5), tol=1e-10).x)
    np.testing.assert_allclose(fit_preferences(true, names), wanted, rtol=1e-3)


@pytest.mark.parametrize("weights", [(1, 1, 1, 1, 1), (4, 2, 1, 0.5, 0.25), (0.2, 1, 1, 1, 5)])
def test_the_weights_of_a_draw_are_found_on_other_rows(weights: tuple[float, ...]) -> None:
    """From how often a class is named in one set, and which labels the rows of another have."""
    train = label_sets(20_000, seed=1).numpy().astype(np.int8)
    train = train[train.any(1)]
    named = drop_labels(train, scheme="weights", class_weights=weights, seed=2).counts().positives
    found = fit_preferences(label_sets(5000, seed=3), torch.from_numpy(named)).log()
    wanted = torch.tensor(weights, dtype=torch.float64).log()
    torch.testing.assert_close(found - found.mean(), wanted - wanted.mean(), atol=0.15, rtol=0)


def skewed(rows: int, *, seed: int = 0) -> Tensor:
    """Label sets of eight classes, which 5% to 60% of the rows have."""
    rng = np.random.default_rng(seed)
    true = rng.random((rows, 8)) < np.geomspace(0.05, 0.6, 8)
    return torch.from_numpy(true[true.any(1)].astype(np.float64))


def named_by(true: Tensor, bias: float, *, seed: int = 0) -> Tensor:
    drawn = drop_labels(true.numpy().astype(np.int8), scheme="frequency", bias=bias, seed=seed)
    return torch.from_numpy(drawn.counts().positives)


@pytest.mark.parametrize("bias", [-0.5, 0.0, 0.5, 1.0])
def test_the_slope_is_found_on_other_rows(bias: float) -> None:
    """Of w_l ∝ frequency_l^bias: close to the regression of log w on log n, which counts all classes alike."""
    train = skewed(20_000, seed=1)
    names = named_by(train, bias, seed=2)
    x, w = names.double().log(), bias * train.mean(0).log()
    wanted = float(((x - x.mean()) * w).sum() / (x - x.mean()).square().sum())
    assert fit_slope(skewed(5000, seed=3), names) == pytest.approx(wanted, abs=0.08)


def test_the_slope_is_scipys_by_plain_loops() -> None:
    true, names = skewed(80), torch.tensor([2, 3, 5, 9, 20, 30, 60, 71])
    rows = [np.flatnonzero(row) for row in true.numpy()]

    def cost(gamma: np.ndarray) -> float:
        named = np.zeros(8)
        for row in rows:
            total = sum(float(names[m]) ** gamma[0] for m in row)
            for c in row:
                named[c] += float(names[c]) ** gamma[0] / total / len(rows)
        return float((gamma[0] / SLOPE) ** 2 / 2 - (names.numpy() / 200 * len(rows) * np.log(named)).sum())

    assert fit_slope(true, names) == pytest.approx(minimize(cost, np.zeros(1), tol=1e-10).x[0], abs=1e-4)


def test_a_slope_that_nothing_says_is_none() -> None:
    true = skewed(60)
    assert fit_slope(true, torch.full((8,), 7)) == 0  # all are named as often
    assert fit_slope(true, torch.zeros(8)) == 0
    assert fit_slope(torch.zeros(0, 8), torch.arange(8)) == 0
    names = named_by(skewed(3000, seed=1), 1.0)
    few, many = (fit_slope(skewed(rows, seed=3), names) for rows in (12, 3000))
    assert abs(few) < many / 2


def test_few_rows_keep_the_weights_near_one_another() -> None:
    names = torch.tensor([900, 50, 40, 9, 1])
    few, many = (fit_preferences(label_sets(rows), names).log().std() for rows in (10, 1000))
    assert few < many


def test_classes_and_rows_that_say_nothing() -> None:
    """A class that no row has, or that is never named, and rows without a label, leave finite weights; none, ones."""
    true = label_sets(50)
    true[:, 2] = 0
    found = fit_preferences(true, torch.tensor([10, 0, 10, 5, 5]))
    assert found.isfinite().all()
    assert (found > 0).all()
    more = torch.cat([true, torch.zeros(30, 5, dtype=true.dtype)])
    torch.testing.assert_close(fit_preferences(more, torch.tensor([10, 0, 10, 5, 5])), found)
    for rows, names in ((true, torch.zeros(5)), (torch.zeros(3, 5), torch.ones(5)), (torch.zeros(0, 5), torch.ones(5))):
        torch.testing.assert_close(fit_preferences(rows, names), torch.ones(5, dtype=torch.float64))


@settings(deadline=None)
@given(st.integers(0, 1000), st.sampled_from([torch.float16, torch.float32, torch.float64]))
def test_one_label_of_every_row_is_named(seed: int, dtype: torch.dtype) -> None:
    true = label_sets(20, seed=seed, chance=0.3).to(dtype)
    weights = torch.from_numpy(np.random.default_rng(seed).uniform(0.2, 5, 5))
    share = chances(true, weights)
    torch.testing.assert_close(share.sum(1).double(), true.any(1).double(), atol=1e-2, rtol=0)
    assert not share[true == 0].any()
    open_ = left_open(true, weights)
    assert open_.dtype == torch.float64
    assert (open_[true == 0] == 1).all()
    alone = true.sum(1) == 1
    torch.testing.assert_close(open_[alone], 1 - true[alone].double())


def test_what_is_left_open_is_the_share_of_draws_that_leave_it() -> None:
    true = torch.tensor([[1, 1, 0, 1], [0, 1, 1, 0]], dtype=torch.float64)
    weights = torch.tensor([4.0, 2.0, 1.0, 1.0], dtype=torch.float64)
    draws = [
        drop_labels(true.numpy().astype(np.int8), scheme="weights", class_weights=weights.numpy(), seed=s).to_dense()
        for s in range(2000)
    ]
    wanted = torch.from_numpy(np.mean([draw == 0 for draw in draws], 0))
    torch.testing.assert_close(left_open(true, weights), wanted, atol=0.04, rtol=0)
