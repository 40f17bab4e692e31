"""k and its intervals."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from onelabel.labels import KEstimate, Labels, estimate_k, k_interval
from onelabel.labels.k import _student


@pytest.mark.shared
@pytest.mark.parametrize(("n", "low", "high"), [(5, 1.0, 2.0), (10, 1.1, 1.9), (25, 1.2, 1.7)])
def test_table_a2(shared_data: Path, n: int, low: float, high: float) -> None:
    with np.load(shared_data / "voc2012" / "labels.npz") as file:
        true = file["train_true"]
    for estimate in (k_interval(true, n=n), estimate_k(true, n=n, seed=1)):
        assert (round(estimate.low, 1), round(estimate.high, 1)) == (low, high)
        assert round(estimate.mean, 2) == 1.46
        assert estimate.n == n


def test_interval_against_every_sample() -> None:
    """Eight rows have few samples of three: the percentiles can be had exactly."""
    true = np.tri(8, 8, dtype=int)
    means = [np.mean(sample) for sample in combinations(range(1, 9), 3)]
    got = k_interval(true, n=3, repeats=200_000)
    low, high = np.quantile(means, [0.05, 0.95])
    assert got.mean == 4.5
    assert abs(got.low - low) < 0.34  # one step of the discrete distribution
    assert abs(got.high - high) < 0.34
    assert k_interval(true, n=8) == KEstimate(4.5, 4.5, 4.5, 8)  # without replacement: all rows, no spread
    assert k_interval(true, n=3) == k_interval(Labels.from_true(true), n=3)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize("freedom", [1, 2, 4, 9, 24, 999, 10_000, 20_000])
def test_student_quantile(level: float, freedom: int) -> None:
    assert _student(level, freedom) == pytest.approx(scipy.stats.t.ppf((1 + level) / 2, freedom), rel=2e-4)


def test_audit_is_students_interval() -> None:
    true = np.random.default_rng(0).integers(0, 2, (12, 7))
    counts = true.sum(1)
    got = estimate_k(true, level=0.95)
    low, high = scipy.stats.t.interval(0.95, 11, loc=counts.mean(), scale=scipy.stats.sem(counts))
    assert got.mean == pytest.approx(counts.mean())
    assert (got.low, got.high) == pytest.approx((low, high), rel=1e-4)
    assert (got.n, got.level) == (12, 0.95)
    assert "95% interval" in str(got)


def test_equal_rows_do_not_make_certainty() -> None:
    got = estimate_k([[1, 0, 0]] * 5)
    assert got.mean == 1
    assert 0 < got.low < 1 < got.high < 2
    assert estimate_k([[1, 0, 0]]) == KEstimate(1.0, 0.0, 3.0, 1)
    assert estimate_k([[1, 1]] * 2).high == 2  # never above L
    assert got.low < 1
    assert estimate_k([[1, 0, 0]] * 5, least=1).low == 1  # every row is known to have a label
    assert estimate_k([[1, 0, 0]], least=1).low == 1
    assert estimate_k([[0, 0]] * 2).low == 0


@pytest.mark.parametrize("extra", [0.05, 0.46])
def test_coverage_of_the_audit(extra: float) -> None:
    """Rows with one positive and sometimes a second: the interval must hold k about as often as it says."""
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        true = np.zeros((25, 4), int)
        true[:, 0] = 1
        true[:, 1] = rng.random(25) < extra
        got = estimate_k(true)
        held += got.low <= 1 + extra <= got.high
    assert held / 400 > 0.84


def test_bad_arguments() -> None:
    true = [[1, 0], [1, 1]]
    with pytest.raises(ValueError, match=r"n must lie in \[1, 2\], the number of rows, got 3"):
        k_interval(true, n=3)
    with pytest.raises(ValueError, match="level must lie strictly between 0 and 1, got 1"):
        estimate_k(true, level=1)
    with pytest.raises(ValueError, match="repeats must be at least 1, got 0"):
        estimate_k(true, n=1, repeats=0)
    with pytest.raises(ValueError, match="true_rows must be fully observed; row 1"):
        estimate_k(Labels.from_matrix([[1, -1], [1, 0]]))
    with pytest.raises(ValueError, match=r"true_rows must hold only 0 .*got -1 at row 0, column 1"):
        estimate_k([[1, -1]])
    with pytest.raises(ValueError, match="true must have at least one row"):
        k_interval(np.zeros((0, 3)), n=1)
