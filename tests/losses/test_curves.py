"""Curves at their limits, and the forms that join them."""

from __future__ import annotations

import math

import loss_reference as ref
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from onelabel.losses import curves

far = torch.tensor([-100.0, -50.0, -21.0, -1e-3, 0.0, 1e-3, 21.0, 50.0, 100.0], dtype=torch.float64)


@settings(deadline=None, max_examples=100)
@given(x=st.floats(-100, 100), q=st.one_of(st.just(0.0), st.just(1.0), st.floats(1e-6, 2)), gamma=st.floats(0, 6))
def test_curves_are_what_they_say(x: float, q: float, gamma: float) -> None:
    g = torch.tensor([x], dtype=torch.float64)
    wanted = {
        curves.nll(g): ref.minus_log(x),
        curves.cost(g): ref.minus_log(-x),
        curves.entropy(g): ref.sigma(x) * ref.minus_log(x) + ref.sigma(-x) * ref.minus_log(-x),
        curves.generalised(g, q): ref.generalised(x, q),
        curves.power(g, gamma): ref.power(x, gamma),
        curves.focused(g, gamma): ref.power(x, gamma) * ref.minus_log(-x),
    }
    for got, want in wanted.items():
        assert got.item() == pytest.approx(want, rel=1e-11, abs=1e-300)
    tensor_q = curves.generalised(g, torch.tensor([q], dtype=torch.float64))
    assert tensor_q.item() == pytest.approx(ref.generalised(x, q), rel=1e-11, abs=1e-16)


def test_float32_keeps_the_tails() -> None:
    g = torch.tensor([-80.0, -30.0, 30.0, 80.0])
    for got, want in [
        (curves.nll(g), [80, 30, math.exp(-30), math.exp(-80)]),
        (curves.entropy(g), [81 * math.exp(-80), 31 * math.exp(-30), 31 * math.exp(-30), 81 * math.exp(-80)]),
        (curves.shifted(g, 0.0), [-math.exp(-80), -math.exp(-30), -30, -80]),
    ]:
        torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float32), rtol=2e-5, atol=0)


def test_gradients_are_finite_where_one_half_of_a_formula_is_not() -> None:
    for margin in (0.0, 0.05, 1.0, torch.tensor([0.0, 0.05, 1.0]).double().reshape(3, 1)):
        g = far.clone().requires_grad_()
        curves.shifted(g, margin).sum().backward()
        assert g.grad.isfinite().all()
    for q in (0.0, 0.01, 1.0, 2.0, torch.tensor([0.0, 0.01, 1.0, 2.0]).double().reshape(4, 1)):
        g = far.clone().requires_grad_()
        curves.generalised(g, q).sum().backward()
        assert g.grad.isfinite().all()


def test_generalised_learns_its_q_nowhere_near_zero() -> None:
    q = torch.tensor([0.0, 0.5], dtype=torch.float64, requires_grad=True)
    curves.generalised(torch.tensor([0.3, 0.3], dtype=torch.float64), q).sum().backward()
    assert q.grad.isfinite().all()


@pytest.mark.parametrize("margin", [0.0, 1e-9, 0.05, 0.5, 1.0])
def test_shifted_is_the_log_complement(margin: float) -> None:
    want = [math.log(min(ref.sigma(-x) + margin, 1.0)) if margin else -ref.minus_log(-x) for x in far.tolist()]
    torch.testing.assert_close(
        curves.shifted(far, margin), torch.tensor(want, dtype=torch.float64), rtol=1e-9, atol=1e-15
    )


def test_pick_gives_numbers_in_the_precision_asked_for() -> None:
    observed = torch.tensor([[1, 0, -1]], dtype=torch.int8)
    for dtype in (torch.float32, torch.float64):
        like = torch.zeros(1, 3, dtype=dtype)
        want = torch.tensor([[0.1, 0.2, 0.3]], dtype=dtype)
        assert torch.equal(curves.pick(observed, like=like, positive=0.1, unknown=0.2, negative=0.3), want)
        stacked = torch.tensor([[[0.2]], [[0.7]]], dtype=dtype)
        got = curves.pick(observed, like=like, positive=0.1, unknown=stacked, negative=0.3)
        assert got.dtype == dtype
        assert got[:, 0].tolist() == [want[0].tolist(), [want[0, 0], torch.tensor(0.7, dtype=dtype), want[0, 2]]]
    assert curves.pick(observed, like=like, positive=1.0, unknown=1.0) == 1.0


def test_against_flips_what_counts_as_positive() -> None:
    g = torch.tensor([[1.0, 2.0, -3.0]])
    assert curves.against(torch.tensor([[True, False, False]]), g).tolist() == [[-1.0, 2.0, -3.0]]


def test_unified_and_soft() -> None:
    observed = torch.tensor([1, 0, -1])
    a, b, c = torch.tensor([1.0] * 3), torch.tensor([10.0] * 3), torch.tensor([100.0] * 3)
    assert curves.unified(observed, positive=a, unknown=b, negative=c).tolist() == [1, 10, 100]
    assert curves.unified(observed, positive=a, unknown=b, negative=c, weight=0.5).tolist() == [1, 5, 100]
    target = torch.tensor([0.0, 0.25, 1.0], requires_grad=True)
    mixed = curves.soft(target, a.requires_grad_(), b)
    assert mixed.tolist() == [10, 7.75, 1]
    mixed.sum().backward()
    assert target.grad is None
    assert a.grad.tolist() == [0, 0.25, 1]


def test_same_looks_at_floats_only() -> None:
    assert curves.same(1.0, 1, 1.0)
    assert not curves.same(1.0, 2.0)
    assert not curves.same(torch.tensor(1.0), 1.0)
