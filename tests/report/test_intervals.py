"""The bootstrap over examples equals resampling by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from onelabel.report.intervals import WORK, bootstrap_map, interval, repetitions


@pytest.mark.parametrize("ties", [False, True])
def test_samples_are_the_map_of_repeated_rows(ties: bool) -> None:
    rng = np.random.default_rng(3)
    true = (rng.random((40, 6)) < 0.3).astype(np.uint8)
    true[:, 5] = 0  # never positive: no part of the mean
    scores = rng.random((40, 6)).astype(np.float32) * 0.5 + 0.5 * true
    scores = scores.round(1) if ties else scores
    found = bootstrap_map(scores, true, times=20, seed=7)
    again = np.random.default_rng(7)
    for value in found:
        rows = np.repeat(np.arange(40), again.multinomial(40, np.full(40, 1 / 40)))
        each = [average_precision_score(true[rows, c], scores[rows, c]) for c in range(6) if true[rows, c].any()]
        assert value == pytest.approx(np.mean(each), abs=1e-12)


def test_equal_seeds_are_paired() -> None:
    rng = np.random.default_rng(0)
    true = (rng.random((60, 3)) < 0.4).astype(np.uint8)
    scores = rng.random((60, 3))
    one, two = (bootstrap_map(s, true, times=30, seed=1) for s in (scores, scores / 2 + 0.1))
    np.testing.assert_array_equal(one, two)  # the same order of scores, the same resamples


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """mAP of all rows of a large population, estimated from samples of 150 rows."""
    rng = np.random.default_rng(5)
    true = (rng.random((20_000, 2)) < 0.3).astype(np.uint8)
    scores = rng.normal(size=true.shape) + 1.2 * true
    whole = np.mean([average_precision_score(true[:, c], scores[:, c]) for c in range(2)])
    inside = 0
    for trial in range(120):
        rows = rng.choice(20_000, 150, replace=False)
        samples = bootstrap_map(scores[rows], true[rows], times=200, seed=trial)
        estimate = np.mean([average_precision_score(true[rows, c], scores[rows, c]) for c in range(2)])
        found = interval(estimate, samples)
        assert found.low < estimate < found.high
        inside += found.low <= whole <= found.high
    assert 0.85 <= inside / 120 <= 1.0


def test_work_is_bounded() -> None:
    assert repetitions(1000, 10) == 1000
    assert repetitions(40_000, 80) == WORK // 3_200_000
    assert repetitions(10**6, 10**3) == 100
