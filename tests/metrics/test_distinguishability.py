"""Wasserstein distances against SciPy's; shares of false negatives against loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance

from onelabel.metrics import false_negative_share, wasserstein

properties = settings(deadline=None, max_examples=60)


def scipy_distance(scores, true):
    if true.all() or not true.any():
        return np.nan
    return wasserstein_distance(scores[true > 0], scores[true == 0])


@properties
@given(data=st.data(), scale=st.sampled_from([1, -30]))
def test_wasserstein_equals_scipy(problems, data, scale):
    scores, true, mask = data.draw(problems())
    scores = scores * scale  # logits are as good as probabilities
    observed = np.where(mask, 0, np.where(true, 1, -1))
    each = [scipy_distance(scores[m, c], true[m, c]) for c, m in enumerate(mask.T)]
    np.testing.assert_allclose(wasserstein(scores, true, observed), each, atol=1e-12)
    macro = np.nanmean(each) if not np.isnan(each).all() else np.nan
    assert wasserstein(scores, true, observed, average="macro") == pytest.approx(macro, nan_ok=True)
    pooled = scipy_distance(scores[mask], true[mask])
    assert wasserstein(scores, true, observed, average="micro") == pytest.approx(pooled, nan_ok=True)
    plain = [scipy_distance(scores[:, c], true[:, c]) for c in range(true.shape[1])]
    np.testing.assert_allclose(wasserstein(scores, true), plain, atol=1e-12)


def test_wasserstein_of_a_shift_is_the_shift():
    scores = np.random.default_rng(0).random((50, 3), dtype=np.float32)
    both = np.concatenate([scores, scores + np.float32([0.5, 0.25, 2])])
    true = np.repeat([[0], [1]], 50, axis=0) * np.ones((1, 3), int)
    np.testing.assert_allclose(wasserstein(both, true), [0.5, 0.25, 2], atol=1e-6)
    stack = wasserstein(np.stack([both, 2 * both]), true)
    np.testing.assert_allclose(stack[1], 2 * stack[0], rtol=1e-6)


@properties
@given(data=st.data(), bins=st.sampled_from([1, 3, 10, 100]))
def test_false_negative_share(problems, data, bins):
    scores, true, mask = data.draw(problems())
    observed = np.where(mask, 0, np.where(true, 1, -1))
    edges = np.arange(bins + 1) / bins
    every = np.histogram(scores[mask].astype("f8"), edges)[0]
    false_negatives = np.histogram(scores[mask & (true > 0)].astype("f8"), edges)[0]
    expected = np.where(every > 0, false_negatives / np.maximum(every, 1), np.nan)
    got = false_negative_share(scores, true, observed, bins=bins)
    np.testing.assert_array_equal(got.edges, edges)
    np.testing.assert_array_equal(got.entries, every)
    np.testing.assert_allclose(got.share, expected)
    each = false_negative_share(scores, true, observed, bins=bins, average=None)
    assert each.share.shape == each.entries.shape == (scores.shape[1], bins)
    for c in range(scores.shape[1]):
        one = false_negative_share(scores[:, [c]], true[:, [c]], observed[:, [c]], bins=bins)
        np.testing.assert_array_equal(each.share[c], one.share)
    macro = false_negative_share(scores, true, observed, bins=bins, average="macro")
    np.testing.assert_array_equal(macro.entries, every)
    full = ~np.isnan(each.share).all(0)
    np.testing.assert_allclose(macro.share[full], np.nanmean(each.share[:, full], axis=0))


def test_bad_input():
    good = np.full((3, 2), 0.5)
    with pytest.raises(ValueError, match=r"scores is -2 at row 1, class 1; expected probabilities in \[0, 1\]"):
        false_negative_share(np.array([[0, 1], [1, -2], [0, 0]]), np.zeros((3, 2)), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="bins is 0; expected at least 1"):
        false_negative_share(good, np.zeros((3, 2)), np.zeros((3, 2)), bins=0)
    with pytest.raises(ValueError, match=r"observed is 0\.5 at row 0, class 0"):
        wasserstein(good, np.zeros((3, 2)), good)
