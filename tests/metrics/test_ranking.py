"""Rankings of the classes against scikit-learn, torchmetrics and random breaking of ties."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk
from torchmetrics.functional.classification import (
    multilabel_coverage_error,
    multilabel_ranking_average_precision,
    multilabel_ranking_loss,
)
from torchmetrics.functional.retrieval import retrieval_precision, retrieval_recall

from onelabel.metrics import (
    coverage_error,
    label_ranking_average_precision,
    one_error,
    precision_at_k,
    ranking_loss,
    recall_at_k,
)

properties = settings(deadline=None, max_examples=60)


@properties
@given(data=st.data())
def test_equals_scikit_learn(problems, data):
    scores, true, _ = data.draw(problems())
    if true.shape[1] == 1:  # scikit-learn takes a single column for a binary problem
        return
    assert coverage_error(scores, true) == pytest.approx(sk.coverage_error(true, scores))
    assert ranking_loss(scores, true) == pytest.approx(sk.label_ranking_loss(true, scores))
    expected = sk.label_ranking_average_precision_score(true, scores)
    assert label_ranking_average_precision(scores, true) == pytest.approx(expected)


@properties
@given(data=st.data())
def test_a_mask_is_as_if_its_entries_were_deleted(problems, data):
    scores, true, mask = data.draw(problems(rows=8))
    pairs = (coverage_error, ranking_loss, label_ranking_average_precision)
    for metric in pairs:
        alone = []
        for s, y, m in zip(scores, true, mask, strict=True):
            nothing = 1.0 if metric is label_ranking_average_precision else 0.0
            alone.append(metric(s[m][None], y[m][None]) if m.any() else nothing)
        assert metric(scores, true, mask=mask) == pytest.approx(np.mean(alone))


def test_equals_torchmetrics():
    torch.manual_seed(0)
    scores, true = torch.rand(200, 12), torch.rand(200, 12) < 0.3
    y = true.int()
    torch.testing.assert_close(coverage_error(scores, true).float(), multilabel_coverage_error(scores, y, 12))
    torch.testing.assert_close(ranking_loss(scores, true).float(), multilabel_ranking_loss(scores, y, 12))
    got = label_ranking_average_precision(scores, true).float()
    torch.testing.assert_close(got, multilabel_ranking_average_precision(scores, y, 12))
    for k in (1, 3, 12):
        rows = [retrieval_precision(s, t, top_k=k) for s, t in zip(scores, true, strict=True)]
        torch.testing.assert_close(precision_at_k(scores, true, k).float(), torch.stack(rows).mean())
        rows = [retrieval_recall(s, t, top_k=k) for s, t in zip(scores, true, strict=True) if t.any()]
        torch.testing.assert_close(recall_at_k(scores, true, k).float(), torch.stack(rows).mean())


@properties
@given(data=st.data())
def test_ties_at_k_are_broken_by_expectation(problems, data):
    scores, true, mask = data.draw(problems(rows=4))
    k = data.draw(st.integers(1, scores.shape[1]))
    precision, recall = [], []
    for s, y, m in zip(scores, true, mask, strict=True):
        s, y = s[m], y[m]
        orders = itertools.permutations(range(len(s)))
        tops = [sorted(order, key=lambda i: -s[i])[:k] for order in orders]  # stable: all ways to break ties
        hits = np.mean([y[list(top)].sum() for top in tops]) if len(s) else 0
        if len(s):
            precision.append(hits / min(k, len(s)))
        if y.any():
            recall.append(hits / y.sum())
    for metric, expected in ((precision_at_k, precision), (recall_at_k, recall)):
        got = metric(scores, true, k, mask=mask)
        assert got == pytest.approx(np.mean(expected)) if expected else np.isnan(got)


def test_one_error():
    scores = np.array([[0.9, 0.1, 0.0], [0.2, 0.3, 0.1], [0.5, 0.5, 0.0]])
    true = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 1]])
    assert one_error(scores, true) == pytest.approx((0 + 1 + 0.5) / 3)


def test_many_classes_need_no_table_of_pairs():
    rng = np.random.default_rng(0)
    scores, true = rng.random((3, 20_000), dtype=np.float32), rng.random((3, 20_000)) < 0.01
    assert ranking_loss(scores, true) == pytest.approx(sk.label_ranking_loss(true, scores))


def test_bad_k():
    for k in (0, 4):
        with pytest.raises(ValueError, match=f"k is {k}; expected 1 to 3, the number of classes"):
            precision_at_k(np.zeros((2, 3)), np.zeros((2, 3)), k)
