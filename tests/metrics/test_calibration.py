"""Calibration against torchmetrics, scikit-learn and plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss
from torchmetrics.functional.classification import binary_calibration_error

from onelabel.metrics import brier_score, calibration_error, reliability

properties = settings(deadline=None, max_examples=60)


def loop_error(scores, true, bins, norm):
    """Equal widths, one entry at a time."""
    groups = {}
    for p, y in zip(scores.astype("f8"), true, strict=True):
        b = next(b for b in range(bins) if b == bins - 1 or p < (b + 1) / bins)
        groups.setdefault(b, []).append((p, y))
    if not groups:
        return np.nan
    weights = np.array([len(g) for g in groups.values()]) / len(scores)
    gaps = np.array([abs(np.mean([p for p, _ in g]) - np.mean([y for _, y in g])) for g in groups.values()])
    return {"l1": (weights * gaps).sum(), "l2": np.sqrt((weights * gaps**2).sum()), "max": gaps.max()}[norm]


@properties
@given(data=st.data(), bins=st.sampled_from([1, 4, 15]), norm=st.sampled_from(["l1", "l2", "max"]))
def test_error_of_equal_widths(problems, data, bins, norm):
    scores, true, mask = data.draw(problems())
    options = {"bins": bins, "norm": norm, "mask": mask}
    each = [loop_error(scores[m, c], true[m, c], bins, norm) for c, m in enumerate(mask.T)]
    np.testing.assert_allclose(calibration_error(scores, true, average=None, **options), each, atol=1e-12)
    macro = np.nanmean(each) if not np.isnan(each).all() else np.nan
    assert calibration_error(scores, true, average="macro", **options) == pytest.approx(macro, nan_ok=True)
    micro = loop_error(scores[mask], true[mask], bins, norm)
    assert calibration_error(scores, true, **options) == pytest.approx(micro, nan_ok=True)


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_error_equals_torchmetrics(norm):
    torch.manual_seed(0)
    scores, true = torch.rand(2000, 3), torch.rand(2000, 3) < 0.4
    expected = [binary_calibration_error(scores[:, c], true[:, c].int(), n_bins=15, norm=norm) for c in range(3)]
    got = calibration_error(scores, true, norm=norm, average=None)
    torch.testing.assert_close(got.float(), torch.stack(expected), rtol=1e-4, atol=1e-5)


@properties
@given(data=st.data(), bins=st.sampled_from([1, 4, 15]))
def test_bins_of_equal_mass(problems, data, bins):
    scores, true, mask = data.draw(problems())
    got = reliability(scores, true, bins=bins, binning="mass", pool=False, mask=mask)
    error = calibration_error(scores, true, bins=bins, binning="mass", average=None, mask=mask)
    for c, m in enumerate(mask.T):
        s, y = scores[m, c].astype("f8"), true[m, c]
        first = np.array([(s > v).sum() for v in s], int)  # a run of ties goes where its first entry goes
        where = first * bins // max(len(s), 1)
        entries = np.bincount(where, minlength=bins)
        np.testing.assert_array_equal(got.entries[c], entries)
        for b in range(bins):
            inside = where == b
            if inside.any():
                assert got.confidence[c, b] == pytest.approx(s[inside].mean())
                assert got.frequency[c, b] == pytest.approx(y[inside].mean())
            else:
                assert np.isnan(got.confidence[c, b])
        gaps = np.nan_to_num(np.abs(got.confidence[c] - got.frequency[c]))
        expected = (entries * gaps).sum() / len(s) if len(s) else np.nan
        assert error[c] == pytest.approx(expected, nan_ok=True)
    p = np.random.default_rng(0).permutation(len(scores))
    again = calibration_error(scores[p], true[p], bins=bins, binning="mass", average=None, mask=mask[p])
    np.testing.assert_allclose(again, error, atol=1e-12)


def test_equal_mass_without_ties_is_equal():
    scores = np.random.default_rng(0).permutation(120).reshape(60, 2) / 120
    assert (reliability(scores, scores > 0.5, bins=6, binning="mass").entries == 20).all()


def test_reliability_equals_scikit_learn():
    rng = np.random.default_rng(0)
    scores = rng.random((500, 2))
    true = rng.random((500, 2)) < scores
    got = reliability(scores, true, bins=10)
    frequency, confidence = calibration_curve(true.ravel(), scores.ravel(), n_bins=10)
    np.testing.assert_allclose(got.frequency, frequency)
    np.testing.assert_allclose(got.confidence, confidence)
    assert got.entries.sum() == 1000
    assert calibration_error(scores, true) < 0.08 < calibration_error(scores**3, true)


@properties
@given(data=st.data())
def test_brier(problems, data):
    scores, true, mask = data.draw(problems())
    each = [
        brier_score_loss(true[m, c], scores[m, c], pos_label=1) if m.any() else np.nan for c, m in enumerate(mask.T)
    ]
    np.testing.assert_allclose(brier_score(scores, true, mask=mask, average=None), each, atol=1e-7)
    kept = (scores[mask].astype(np.float64) - true[mask]) ** 2  # float32 means round by more than 1e-7
    expected = kept.mean() if mask.any() else np.nan
    assert brier_score(scores, true, mask=mask) == pytest.approx(expected, nan_ok=True, abs=1e-7)


def test_bad_input():
    good = np.full((2, 2), 0.5)
    for metric in (calibration_error, brier_score, reliability):
        with pytest.raises(ValueError, match=r"scores is 1\.5 at row 0, class 1; expected probabilities"):
            metric(np.array([[0, 1.5], [0, 1]]), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="binning is 'quantile'; expected one of 'width', 'mass'"):
        calibration_error(good, np.zeros((2, 2)), binning="quantile")
    with pytest.raises(ValueError, match="bins is 0"):
        calibration_error(good, np.zeros((2, 2)), bins=0)
