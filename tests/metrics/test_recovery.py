"""Label recovery and predictive values against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from onelabel.metrics import label_recovery_ap, ppv_npv

properties = settings(deadline=None, max_examples=60)


def test_label_recovery_ranks_all_entries_or_the_unknown_ones():
    rng = np.random.default_rng(0)
    scores, true = rng.random((300, 4)), rng.random((300, 4)) < 0.3
    observed = np.where(true & (rng.random(true.shape) < 0.4), 1, 0)
    observed[~true & (rng.random(true.shape) < 0.2)] = -1
    every = [average_precision_score(true[:, c], scores[:, c]) for c in range(4)]
    assert label_recovery_ap(scores, true, observed) == pytest.approx(np.mean(every))
    np.testing.assert_allclose(label_recovery_ap(scores, true, observed, average=None), every)
    hidden = [observed[:, c] == 0 for c in range(4)]
    every = [average_precision_score(true[h, c], scores[h, c]) for c, h in enumerate(hidden)]
    assert label_recovery_ap(scores, true, observed, entries="unknown") == pytest.approx(np.mean(every))


def test_what_was_observed_does_not_change_the_published_value():
    rng = np.random.default_rng(1)
    scores, true = rng.random((30, 4)), rng.random((30, 4)) < 0.3
    assert label_recovery_ap(scores, true, true.astype(int)) == label_recovery_ap(scores, true, 0 * true)
    # with everything observed nothing is left to recover
    assert label_recovery_ap(scores, true, np.where(true, 1, -1), entries="unknown") == 0
    nothing = label_recovery_ap(scores, true, np.where(true, 1, -1), entries="unknown", empty="skip")
    assert np.isnan(nothing)


@properties
@given(data=st.data(), tau=st.sampled_from([0.0, 0.2, 0.5, 1.0]))
def test_predictive_values(problems, data, tau):
    scores, true, mask = data.draw(problems())
    ppv, npv = [], []
    for c in range(scores.shape[1]):
        s, y = scores[mask[:, c], c], true[mask[:, c], c]
        ppv.append(y[s > tau].mean() if (s > tau).any() else np.nan)
        npv.append(1 - y[s <= tau].mean() if (s <= tau).any() else np.nan)
    got = ppv_npv(scores, true, tau, mask=mask, average=None)
    np.testing.assert_allclose(got.ppv, ppv, atol=1e-12)
    np.testing.assert_allclose(got.npv, npv, atol=1e-12)
    macro = ppv_npv(scores, true, tau, mask=mask)
    for value, each in ((macro.ppv, ppv), (macro.npv, npv)):
        expected = np.nanmean(each) if not np.isnan(each).all() else np.nan
        assert value == pytest.approx(expected, nan_ok=True)
    micro = ppv_npv(scores, true, tau, mask=mask, average="micro")
    s, y = scores[mask], true[mask]
    assert micro.ppv == pytest.approx(y[s > tau].mean() if (s > tau).any() else np.nan, nan_ok=True)
    assert micro.npv == pytest.approx(1 - y[s <= tau].mean() if (s <= tau).any() else np.nan, nan_ok=True)


def test_observed_labels_are_checked():
    good = np.zeros((3, 2))
    with pytest.raises(ValueError, match=r"observed has shape \(2, 2\); expected \(3, 2\)"):
        label_recovery_ap(good, good, np.zeros((2, 2)))
    with pytest.raises(ValueError, match="observed is 2 at row 1, class 0"):
        label_recovery_ap(good, good, np.array([[0, 1], [2, 0], [0, 0]]))
    with pytest.raises(ValueError, match="tau has shape"):
        ppv_npv(good, good, np.zeros(3))
    with pytest.raises(ValueError, match="entries is 'hidden'"):
        label_recovery_ap(good, good, good, entries="hidden")
