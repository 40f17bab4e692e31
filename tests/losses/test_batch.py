"""Pairwise ranking, expected positives, weight penalties."""

from __future__ import annotations

import pytest
import torch

import onelabel
from onelabel.losses import pairwise_ranking


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(4)
    logits = torch.randn(6, 9, generator=rng, dtype=torch.float64) * 4
    return logits, torch.randint(-1, 2, (6, 9), generator=rng, dtype=torch.int8)


def test_pairs_by_brute_force(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    logits, observed = batch
    p = logits.sigmoid()
    hinge = (1 - p[:, :, None] + p[:, None, :]).clamp(min=0)
    pairs = (observed > 0)[:, :, None] & (observed == 0)[:, None, :]
    torch.testing.assert_close(pairwise_ranking(logits, observed), (hinge * pairs).sum((1, 2)))


def test_pairs_far_out_keep_their_gradient_in_float32() -> None:
    logits = torch.tensor([[30.0, -30.0]], requires_grad=True)
    pairwise_ranking(logits, torch.tensor([[1, 0]])).sum().backward()
    assert logits.grad[0, 0] == pytest.approx(-9.3576e-14, rel=1e-4)
    assert logits.grad[0, 1] == pytest.approx(9.3576e-14, rel=1e-4)


def test_rows_without_a_positive_or_an_unknown_have_no_pairs(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    for observed in (torch.zeros(6, 9), torch.ones(6, 9)):
        assert onelabel.method("pr")(batch[0], observed) == 0
    known = torch.where(batch[1] == 0, -1, batch[1])
    negative = torch.nn.functional.softplus(batch[0], threshold=50) * (known < 0)
    torch.testing.assert_close(onelabel.method("pr")(batch[0], known), negative.sum(-1).mean())


def test_reference_divides_by_the_classes(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    one, other = (onelabel.method("pr", variant=v)(*batch) for v in ("paper", "reference"))
    torch.testing.assert_close(one, other * 9)
    # EPR divides its positive half only.
    settings = {"expected_positives": 3.0}
    half = {v: onelabel.method("epr", **settings, lam=0.0, variant=v)(*batch) for v in ("paper", "reference")}
    whole = {v: onelabel.method("epr", **settings, variant=v)(*batch) for v in ("paper", "reference")}
    assert half["reference"] * 9 == pytest.approx(half["paper"].item(), rel=1e-2)  # but for its epsilon
    torch.testing.assert_close(whole["paper"] - half["paper"], whole["reference"] - half["reference"])


def test_expected_positives_are_the_batchs_mean(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    found = batch[0].sigmoid().sum() / 6
    unknown = torch.zeros(6, 9)
    for k in (1.0, 4.5, 9.0):
        loss = onelabel.method("epr", expected_positives=k, lam=2.0)(batch[0], unknown)
        torch.testing.assert_close(loss, 2 * ((found - k) / 9) ** 2)
    assert onelabel.method("epr", expected_positives=found.item())(batch[0], unknown) == pytest.approx(0, abs=1e-24)


@pytest.mark.parametrize("k", [0.0, 9.5, [1.0, 10.0]])
def test_k_must_lie_within_the_classes(batch: tuple[torch.Tensor, torch.Tensor], k: object) -> None:
    logits = batch[0].expand(2, 6, 9) if isinstance(k, list) else batch[0]
    with pytest.raises(
        ValueError, match=r"expected_positives must lie in \(0, 9\], the number of classes, got (0|9.5|10)"
    ):
        onelabel.method("epr", expected_positives=k)(logits, batch[1])


@pytest.mark.parametrize(("name", "order"), [("l1r", 1), ("l2r", 2)])
def test_penalties_are_an_plus_the_norm(batch: tuple[torch.Tensor, torch.Tensor], name: str, order: int) -> None:
    weights = [torch.randn(3, 4, requires_grad=True), torch.randn(4, requires_grad=True), torch.tensor(2.0)]
    size = sum((w.abs() if order == 1 else w**2).sum() for w in weights)
    criterion = onelabel.method(name, strength=0.01)
    assert criterion.needs.weights
    loss = criterion(*batch, weights=weights)
    torch.testing.assert_close(loss, onelabel.method("an")(*batch) + 0.01 * size)
    loss.backward()
    torch.testing.assert_close(weights[0].grad, 0.01 * (weights[0].sign() if order == 1 else 2 * weights[0]).detach())
    torch.testing.assert_close(
        onelabel.method(name, strength=0.0)(*batch, weights=weights), onelabel.method("an")(*batch)
    )
    with pytest.raises(ValueError, match="Penalised needs weights="):
        criterion(*batch)


@pytest.mark.parametrize("name", ["l1r", "l2r"])
def test_penalties_of_a_generator_a_stack_and_half_precision(name: str) -> None:
    logits, observed = torch.zeros(2, 1, 3), torch.zeros(1, 3)
    weights = [torch.tensor([[1.0, -2.0], [3.0, 4.0]]), torch.tensor([0.5, 0.25])]
    stacked = onelabel.method(name, strength=[0.1, 1.0])(logits, observed, weights=iter(weights))
    for m, strength in enumerate((0.1, 1.0)):
        alone = onelabel.method(name, strength=strength)(logits[m], observed, weights=[w[m] for w in weights])
        torch.testing.assert_close(stacked[m], alone)
    big = [torch.full((200, 1000), 0.5, dtype=torch.float16)]  # whose norm float16 cannot hold
    loss = onelabel.method(name, strength=1.0)(logits[0], observed, weights=big)
    assert loss.item() == pytest.approx(2e5 * (0.5 if name == "l1r" else 0.25), rel=1e-4)


def test_order_must_be_one_or_two() -> None:
    with pytest.raises(ValueError, match="order must be 1 or 2, got 3"):
        onelabel.losses.Penalised(order=3)
