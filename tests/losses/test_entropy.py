"""Entropy maximisation and minimisation."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import onelabel


@settings(deadline=None, max_examples=100)
@given(x=st.floats(-60, 60), alpha=st.floats(0, 2))
def test_the_gradient_on_an_unknown_entry_is_alpha_g_p_one_minus_p(x: float, alpha: float) -> None:
    logits = torch.tensor([[x]], dtype=torch.float64, requires_grad=True)
    onelabel.method("em", alpha=alpha)(logits, torch.tensor([[0]])).backward()
    p = logits.detach().sigmoid()
    want = alpha * x * (p * torch.sigmoid(-logits.detach())).item()
    assert logits.grad.item() == pytest.approx(want, rel=1e-9, abs=1e-15)


def test_known_cases() -> None:
    torch.manual_seed(0)
    logits, observed = torch.randn(5, 6, dtype=torch.float64) * 3, torch.randint(-1, 2, (5, 6))
    iu = onelabel.method("iu")(logits, observed)
    torch.testing.assert_close(onelabel.method("em", alpha=0.0)(logits, observed), iu)
    torch.testing.assert_close(onelabel.method("entmin", alpha=0.0)(logits, observed), iu)
    # The one's gain is the other's cost.
    both = onelabel.method("em", alpha=0.3)(logits, observed) + onelabel.method("entmin", alpha=0.3)(logits, observed)
    torch.testing.assert_close(both, 2 * iu)


def test_the_loss_may_be_negative_and_is_least_at_a_half() -> None:
    unknown = torch.zeros(1, 3, dtype=torch.int8)
    em = onelabel.method("em", alpha=0.2)
    assert em(torch.zeros(1, 3), unknown).item() == pytest.approx(-0.2 * math.log(2))
    assert em(torch.tensor([[3.0, -2.0, 0.1]]), unknown) > em(torch.zeros(1, 3), unknown)


def test_at_zero_the_known_entries_still_learn() -> None:
    """A head that starts at 0 sits on the kink of |g|."""
    logits = torch.zeros(1, 3, requires_grad=True)
    onelabel.method("em")(logits, torch.tensor([[1, 0, -1]])).backward()
    torch.testing.assert_close(logits.grad * 3, torch.tensor([[-0.5, 0.0, 0.5]]))


def test_reference_adds_its_epsilon_inside_the_logarithm() -> None:
    p = torch.tensor(-7.0, dtype=torch.float64).sigmoid().item()
    want = -0.2 * (p * -math.log(p + 1e-5) + (1 - p) * -math.log(1 - p + 1e-5))
    got = onelabel.method("em", alpha=0.2, variant="reference")(torch.tensor([[-7.0]]).double(), torch.tensor([[0]]))
    assert got.item() == pytest.approx(want, rel=1e-12)
    assert abs(want + 0.2 * 8 * p) > 1e-6  # which the paper's formula is not
