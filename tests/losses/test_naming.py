"""A share of the naming distribution in a label's logit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import onelabel
from onelabel.losses import RollCall
from onelabel.losses.naming import NamingHead, with_naming

SHARES = (0.0, 0.3, 0.5, 1.0)


@pytest.fixture
def outputs() -> torch.Tensor:
    return 3 * torch.randn(6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("share", SHARES)
def test_against_plain_loops(outputs: torch.Tensor, share: float) -> None:
    found = with_naming(outputs, share)
    for row, logits in zip(outputs.exp().tolist(), found.tolist(), strict=True):
        for s, logit in zip(row, logits, strict=True):
            presence, named = torch.tensor([s, s / sum(row)]).double().log().tolist()
            assert logit == pytest.approx((1 - share) * presence + share * named, abs=1e-6)


def test_nothing_and_all_of_it(outputs: torch.Tensor) -> None:
    assert torch.equal(with_naming(outputs, 0.0), outputs)
    torch.testing.assert_close(with_naming(outputs, 1.0), torch.log_softmax(outputs, -1))


@pytest.mark.parametrize("share", SHARES)
def test_what_is_added_to_a_row_counts_for_the_rest_alone(outputs: torch.Tensor, share: float) -> None:
    level = torch.linspace(-4, 4, len(outputs), dtype=torch.float64)[:, None]
    moved = with_naming(outputs + level, share) - with_naming(outputs, share)
    torch.testing.assert_close(moved, ((1 - share) * level).expand_as(outputs))


@pytest.mark.parametrize("share", SHARES)
def test_gradients(outputs: torch.Tensor, share: float) -> None:
    assert torch.autograd.gradcheck(lambda s: with_naming(s, share), outputs.requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_finite_at_the_ends(dtype: torch.dtype) -> None:
    extreme = torch.tensor([[100.0, -100.0, 0.0], [100.0, 100.0, 100.0], [-100.0, -100.0, -100.0]], dtype=dtype)
    extreme.requires_grad_()
    found = with_naming(extreme, 0.5)
    found.sum().backward()
    assert found.dtype == dtype
    assert found.isfinite().all()
    assert extreme.grad is not None
    assert extreme.grad.isfinite().all()


def test_a_stack_has_a_share_for_each() -> None:
    outputs = torch.randn(3, 4, 5, dtype=torch.float64)
    stacked = RollCall(naming=[0.0, 0.5, 1.0]).double().presence(outputs)
    for i, share in enumerate((0.0, 0.5, 1.0)):
        torch.testing.assert_close(stacked[i], with_naming(outputs[i], share))


def test_the_classifier_that_a_method_asks_for() -> None:
    assert onelabel.method("roll-call").head(7, 5) is None
    criterion = onelabel.method("roll-call", naming=0.5)
    head = criterion.head(7, 5)
    assert isinstance(head, NamingHead)
    features = torch.randn(4, 7)
    outputs = nn.functional.linear(features, head.weight, head.bias)
    torch.testing.assert_close(head(features), criterion.presence(outputs))
    assert "share=0.5" in repr(head)
    with pytest.raises(ValueError, match="naming"):
        onelabel.method("roll-call", naming=1.5)
