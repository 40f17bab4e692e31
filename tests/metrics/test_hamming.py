"""Hamming losses against scikit-learn and plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import hamming_loss as sklearn_hamming

from onelabel.metrics import cost_sensitive_hamming_loss, hamming_loss

properties = settings(deadline=None, max_examples=60)


@properties
@given(data=st.data())
def test_hamming(problems, data):
    scores, true, mask = data.draw(problems())
    assert hamming_loss(scores, true) == pytest.approx(sklearn_hamming(true, (scores > 0.5).astype(int)))
    if mask.any():
        wrong = (scores > 0.3)[mask] != true[mask]
        assert hamming_loss(scores, true, threshold=0.3, mask=mask) == pytest.approx(wrong.mean())
    else:
        assert np.isnan(hamming_loss(scores, true, mask=mask))


@properties
@given(data=st.data())
def test_cost_sensitive_hamming(problems, data):
    scores, true, mask = data.draw(problems())
    lasd, fixed = [], []
    for s, y, m in zip(scores, true, mask, strict=True):
        y, p = y[m] > 0, s[m] > 0.5
        lasd.append(sum((~p[y]) / max(y.sum(), 1)) + sum(p[~y] / max((~y).sum(), 1)))
        fixed.append((3 * (y & ~p).sum() + 2 * (~y & p).sum()) / max(m.sum(), 1))
    got = cost_sensitive_hamming_loss(scores, true, mask=mask)
    assert got == pytest.approx(np.mean(lasd))
    assert cost_sensitive_hamming_loss(scores, true, costs=(3, 2), mask=mask) == pytest.approx(np.mean(fixed))
    assert 0 <= got <= 2


def test_equal_costs_are_plain_hamming():
    rng = np.random.default_rng(0)
    scores, true = rng.random((50, 6)), rng.random((50, 6)) < 0.4
    assert cost_sensitive_hamming_loss(scores, true, costs=(1, 1)) == pytest.approx(hamming_loss(scores, true))
