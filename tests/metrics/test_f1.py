"""F1 against scikit-learn and the best thresholds against trying every one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score as sklearn_f1
from sklearn.metrics import precision_recall_fscore_support as sklearn_all

from onelabel.metrics import best_thresholds, f1_score, precision_recall

properties = settings(deadline=None, max_examples=60)


def loop_f1(scores, true, mask, thresholds):
    out = []
    for c in range(scores.shape[1]):
        y, p = true[mask[:, c], c] > 0, scores[mask[:, c], c] > thresholds[c]
        total = 2 * (y & p).sum() + (y ^ p).sum()
        out.append(2 * (y & p).sum() / total if total else 0.0)
    return np.array(out)


@properties
@given(data=st.data())
def test_equals_scikit_learn(problems, data):
    scores, true, _ = data.draw(problems())
    for threshold in (0.5, np.linspace(0.2, 0.8, scores.shape[1])):
        predicted = (scores > threshold).astype(int)
        for average in ("micro", "macro", None):
            # one column would be taken for a binary problem
            padded = [np.pad(x, ((0, 0), (0, 1))) for x in (true, predicted)]
            expected = sklearn_f1(*padded, average=average, zero_division=0)
            if average is None:
                expected = expected[:-1]
            elif average == "macro":
                expected = expected * (true.shape[1] + 1) / true.shape[1]
            got = f1_score(scores, true, threshold=threshold, average=average)
            np.testing.assert_allclose(got, expected, atol=1e-12)
            np.testing.assert_allclose(f1_score(predicted, true, average=average), expected, atol=1e-12)


@properties
@given(data=st.data())
def test_overall_and_per_class_equal_scikit_learn(problems, data):
    scores, true, mask = data.draw(problems())
    top = data.draw(st.one_of(st.none(), st.integers(1, true.shape[1])))
    said = scores > 0.5
    if top is not None:
        said = np.zeros_like(true, bool)
        np.put_along_axis(said, np.argsort(-scores, 1, kind="stable")[:, :top], True, 1)
    for kept in (np.ones_like(mask), mask):
        counts = [np.array([(a[kept[:, c], c] & b[kept[:, c], c]).sum() for c in range(true.shape[1])])
                  for a, b in ((said, true > 0), (said, ~(true > 0)), (~said, true > 0))]  # fmt: skip
        expected = []
        for hit, over, miss in ([x.sum(keepdims=True) for x in counts], counts):
            p, r = (np.mean(np.where(hit + x > 0, hit / np.maximum(hit + x, 1), 0)) for x in (over, miss))
            expected += [p, r, 2 * p * r / (p + r) if p + r else 0.0]
        got = precision_recall(scores, true, top=top, mask=kept)
        np.testing.assert_allclose(got, expected, atol=1e-12)
    padded = [np.pad(x.astype(int), ((0, 0), (0, 1))) for x in (true, said)]
    whole = precision_recall(scores, true, top=top)
    for kind, names in (("micro", ("op", "or_", "of1")), ("macro", ("cp", "cr"))):
        theirs = sklearn_all(*padded, average=kind, zero_division=0)[:3]
        scale = 1 if kind == "micro" else (true.shape[1] + 1) / true.shape[1]
        for name, value in zip(names, theirs, strict=False):
            assert getattr(whole, name) == pytest.approx(value * scale)


def test_precision_recall_of_a_stack_and_of_too_many():
    scores, true = torch.rand(3, 20, 5, generator=torch.Generator().manual_seed(0)), torch.rand(20, 5) > 0.5
    stacked = precision_recall(scores, true, top=2)
    for m in range(3):
        torch.testing.assert_close([x[m] for x in stacked], list(precision_recall(scores[m], true, top=2)))
    with pytest.raises(ValueError, match="top is 6; expected 1 to 5"):
        precision_recall(scores, true, top=6)


@properties
@given(data=st.data())
def test_a_mask_is_as_if_its_entries_were_deleted(problems, data):
    scores, true, mask = data.draw(problems())
    each = loop_f1(scores, true, mask, [0.5] * scores.shape[1])
    np.testing.assert_allclose(f1_score(scores, true, mask=mask, average=None), each, atol=1e-12)
    kept = [x[mask][:, None] for x in (scores, true)]
    micro = loop_f1(*kept, np.ones_like(kept[0], bool), [0.5])[0]
    assert f1_score(scores, true, mask=mask, average="micro") == pytest.approx(micro)


@properties
@given(data=st.data())
def test_no_threshold_is_better_than_the_best(problems, data):
    scores, true, mask = data.draw(problems())
    best = best_thresholds(scores, true, mask=mask)
    got = loop_f1(scores, true, mask, best)
    for c in range(scores.shape[1]):
        tries = [-np.inf, *np.unique(scores[:, c])]
        every = [loop_f1(scores[:, [c]], true[:, [c]], mask[:, [c]], [t])[0] for t in tries]
        assert got[c] == pytest.approx(max(every))
    np.testing.assert_allclose(f1_score(scores, true, threshold=best, mask=mask, average=None), got)
    pooled = best_thresholds(scores, true, mask=mask, micro=True)
    tries = [f1_score(scores, true, threshold=t, mask=mask, average="micro") for t in [-1, *np.unique(scores)]]
    assert pooled.shape == (1,)
    micro = f1_score(scores, true, threshold=pooled, mask=mask, average="micro")
    assert micro == pytest.approx(max(tries))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_threshold_between_neighbouring_floats(dtype):
    low = dtype(0.3)
    scores = np.array([[low], [np.nextafter(low, dtype(1))]])
    best = best_thresholds(scores, [[0], [1]])
    assert f1_score(scores, [[0], [1]], threshold=best) == 1


def test_thresholds_at_the_ends():
    scores = np.array([[0.1, 0.4, -np.inf], [0.2, 0.3, np.inf]])
    best = best_thresholds(scores, [[0, 1, 0], [0, 1, 1]])
    np.testing.assert_array_equal(best, [np.inf, -np.inf, -np.inf])
    assert best_thresholds(np.array([[0.2], [0.6]]), [[0], [1]])[0] == pytest.approx(0.4)


def test_one_threshold_per_class_and_model():
    rng = np.random.default_rng(0)
    scores, true = rng.random((3, 40, 4)), rng.random((40, 4)) < 0.3
    best = best_thresholds(scores, true)
    assert best.shape == (3, 4)
    got = f1_score(scores, true, threshold=best)
    for m in range(3):
        np.testing.assert_allclose(best[m], best_thresholds(scores[m], true))
        assert got[m] == pytest.approx(f1_score(scores[m], true, threshold=best[m]))


def test_bad_thresholds():
    scores = torch.zeros(3, 4)
    with pytest.raises(ValueError, match=r"threshold has shape \(3,\); expected a number or \(4,\), one per class"):
        f1_score(scores, scores, threshold=np.zeros(3))
    for nan in (np.nan, np.full(4, np.nan)):
        with pytest.raises(ValueError, match="threshold is NaN"):
            f1_score(scores, scores, threshold=nan)
    with pytest.raises(ValueError, match="average is 'weighted'; expected one of 'micro', 'macro', None"):
        f1_score(scores, scores, average="weighted")
