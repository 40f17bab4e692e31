"""Intervals and agreement, against scipy, scikit-learn and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import cohen_kappa_score

from onelabel.review.stats import kappa, stratified, wilson


@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (0, 40), (40, 40), (7, 9), (130, 1000)])
def test_wilson_is_scipys(k: int, n: int) -> None:
    got = wilson(k, n)
    expected = binomtest(k, n).proportion_ci(method="wilson")
    assert got is not None
    assert (got.value, got.low, got.high) == pytest.approx((k / n, expected.low, expected.high), abs=1e-12)


def test_without_answers_there_is_no_estimate() -> None:
    assert wilson(0, 0) is None
    assert stratified([(10, 0, 0)]) is None
    assert kappa({}) == (0, 0.0, None)


def test_kappa_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    a = rng.integers(-1, 2, 300)
    b = np.where(rng.random(300) < 0.7, a, rng.integers(-1, 2, 300))
    pairs, counts = np.unique(np.stack([a, b]), axis=1, return_counts=True)
    n, agreed, value = kappa({(int(x), int(y)): int(c) for x, y, c in zip(*pairs, counts, strict=True)})
    assert (n, agreed) == (300, pytest.approx((a == b).mean()))
    assert value == pytest.approx(cohen_kappa_score(a, b))


def test_kappa_is_undefined_where_both_always_say_the_same() -> None:
    assert kappa({(1, 1): 5}) == (5, 1.0, None)


def test_a_stratum_answered_whole_is_known() -> None:
    got = stratified([(10, 10, 7)])
    assert got is not None
    assert (got.value, got.low, got.high, got.covered) == (0.7, 0.7, 0.7, 1.0)


def test_the_stratified_interval_covers_and_corrects_the_order() -> None:
    """Answers come best first: the plain share flatters, the stratified estimate does not."""
    rng = np.random.default_rng(1)
    sizes, rates, answered = [200, 200, 200, 200], [0.9, 0.6, 0.3, 0.1], [150, 60, 20, 10]
    covered, errors, plain = 0, [], []
    for _ in range(1000):
        truth = [rng.random(size) < rate for size, rate in zip(sizes, rates, strict=True)]
        got = stratified([(len(t), n, int(t[:n].sum())) for t, n in zip(truth, answered, strict=True)])
        assert got is not None
        share = np.concatenate(truth).mean()
        covered += got.low <= share <= got.high
        errors.append(got.value - share)
        plain.append(sum(t[:n].sum() for t, n in zip(truth, answered, strict=True)) / sum(answered) - share)
    assert 0.93 <= covered / 1000 <= 0.99
    assert abs(np.mean(errors)) < 0.02 < 0.2 < np.mean(plain)
