"""GR: closed forms, limits, schedules, and learning its own four numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import onelabel
from onelabel.losses import GR, fused, gr


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(3)
    logits = torch.randn(6, 9, generator=rng, dtype=torch.float64) * 4
    return logits, torch.randint(-1, 2, (6, 9), generator=rng, dtype=torch.int8)


@settings(deadline=None, max_examples=100)
@given(x=st.floats(-30, 30), q2=st.floats(0, 2), q3=st.floats(0, 2), w=st.floats(-9, 9), b=st.floats(-9, 9))
def test_the_gradient_on_an_unknown_entry(x: float, q2: float, q3: float, w: float, b: float) -> None:
    """(1−k̂)(1−p)^q3·p − k̂·p^q2·(1−p), at v = 1."""
    q2, q3 = (0.0 if q < 1e-6 else q for q in (q2, q3))
    logits = torch.tensor([[x]], dtype=torch.float64, requires_grad=True)
    gr(logits, torch.tensor([[0]]), q2=q2, q3=q3, w=w, b=b, sigma=1e9).backward()
    p, r = (1 / (1 + math.exp(-s * x)) for s in (1, -1))
    k = 1 / (1 + math.exp(-(w * p + b)))
    assert logits.grad.item() == pytest.approx((1 - k) * r**q3 * p - k * p**q2 * r, rel=1e-9, abs=1e-14)


QS = (0.01, 0.03, 0.1, 0.5, 0.9, 0.999999, 1.0, 1.5)


@pytest.mark.parametrize("mode", ["off", "on"])
@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("q3", QS)
@pytest.mark.parametrize("q2", QS)
def test_slopes_keep_their_sign_and_digits_in_float32(q2: float, q3: float, stacked: bool, mode: Any) -> None:
    """k̂ near ½ sets the halves of an unknown entry against each other, where p or 1−p is far below float32's 1e-7."""
    x = torch.linspace(-40, 40, 481)
    own, other = (torch.logaddexp(torch.zeros(()), s * x.double()) for s in (-1, 1))  # −log p, −log(1−p)
    k = 1 / (1 + math.exp(0.1))
    pulls = (1 - k) * torch.exp(-q3 * other - own), k * torch.exp(-q2 * own - other)
    values = k * -torch.expm1(-q2 * own) / q2 + (1 - k) * -torch.expm1(-q3 * other) / q3
    how: dict[str, Any] = {"w": 0.0, "b": -0.1, "mu": 0.5, "sigma": 1e6}
    criterion = GR(q1=q2, q2=[q2, q2] if stacked else q2, q3=q3, start=how, **how)
    for label, slope, value in (
        (0, pulls[0] - pulls[1], values),
        (1, -torch.exp(-q2 * own - other), -torch.expm1(-q2 * own) / q2),
    ):
        logits = x.expand(2, 1, -1).clone() if stacked else x[None].clone()
        logits.requires_grad_()
        with fused.using(mode):
            loss = criterion(logits, torch.full((1, len(x)), label, dtype=torch.int8))
            loss.sum().backward()
        found = logits.grad.reshape(-1, len(x))[0] * len(x)
        size = pulls[0] + pulls[1] if label == 0 else slope.abs()
        assert ((found - slope).abs() <= 2e-5 * size + 1e-37).all()
        told = slope.abs() > 1e-4 * size
        assert (found.sign() == slope.sign())[told & (size > 1e-37)].all()
        assert loss.reshape(-1)[0].item() == pytest.approx(value.mean().item(), rel=1e-5)


def test_without_robustness_pseudo_labels_or_weights_it_is_an(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    logits = batch[0].clone().requires_grad_()
    an = onelabel.method("an").entries(logits, batch[1])
    for q in (0.0, 1e-9):
        ours = gr(logits, batch[1], q1=q, q2=q, q3=q, w=0.0, b=-1e3, sigma=1e12)
        torch.testing.assert_close(ours, an, rtol=1e-6, atol=1e-12)
        torch.testing.assert_close(*(torch.autograd.grad(x.sum(), logits, retain_graph=True)[0] for x in (ours, an)))
    criterion = onelabel.method("gr", q1=0, q2=0, q3=0, w=0.0, b=-1000.0, sigma=1e6)
    criterion.begin_epoch(7, 8)
    torch.testing.assert_close(criterion(*batch), onelabel.method("an")(*batch))


def test_a_steep_pseudo_label_is_a_hard_threshold(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    """w→∞ with −b/w = τ: SPLC's correction, here without focus."""
    logits, unknown = batch[0], torch.zeros_like(batch[1])
    ours = gr(logits, unknown, q2=0.0, q3=0.0, w=1e9, b=-0.6e9, sigma=1e12)
    want = onelabel.losses.splc(logits, unknown, tau=0.6, gamma=0.0)
    torch.testing.assert_close(ours, want)


def test_no_weight_between_two_thresholds_is_two_threshold_pseudo_labelling() -> None:
    """Eq. 15–16: positive above the upper, negative below the lower, ignored between: v = 0 there, k̂ a hard threshold.

    A Gaussian cannot be 1 on both sides and 0 between, but it can single out one side: narrow around 1 it keeps the
    confident positives, around 0 the confident negatives, and what lies between is ignored."""
    p = torch.tensor([[0.001, 0.5, 0.999]], dtype=torch.float64)
    logits, unknown = torch.logit(p), torch.zeros(1, 3)
    hard = {"q2": 0.0, "q3": 0.0, "w": 1e9, "b": -0.5e9, "sigma": 0.05}
    above, below = (gr(logits, unknown, mu=mu, **hard)[0] for mu in (1.0, 0.0))
    torch.testing.assert_close(above, torch.tensor([0, 0, -math.log(0.999)]).double(), rtol=1e-3, atol=1e-12)
    torch.testing.assert_close(below, torch.tensor([-math.log(0.999), 0, 0]).double(), rtol=1e-3, atol=1e-12)


def test_the_weight_falls_like_a_gaussian_and_spares_what_is_observed() -> None:
    p = torch.tensor([[0.5, 0.8, 1.0]], dtype=torch.float64).clamp(max=1 - 1e-12)
    logits = torch.logit(p)
    plain, weighed = (gr(logits, torch.zeros(1, 3), mu=0.8, sigma=s) for s in (1e9, 0.1))
    torch.testing.assert_close((weighed / plain)[0], torch.tensor([math.exp(-4.5), 1.0, math.exp(-2.0)]).double())
    for label in (-1, 1):
        known = torch.full((1, 3), label)
        torch.testing.assert_close(gr(logits, known, sigma=0.1), gr(logits, known, sigma=1e9))


def test_q1_is_for_positives_and_negatives_pay_plainly() -> None:
    logits = torch.tensor([[0.3]], dtype=torch.float64)
    p = logits.sigmoid().item()
    assert gr(logits, torch.tensor([[1]]), q1=0.5, q2=0.1).item() == pytest.approx((1 - p**0.5) / 0.5)
    assert gr(logits, torch.tensor([[1]]), q1=0.5, eps=1e-7).item() == pytest.approx(-math.log(p + 1e-7))
    assert gr(logits, torch.tensor([[-1]]), q3=0.5).item() == pytest.approx(-math.log(1 - p))


@pytest.mark.parametrize("stacked", [False, True])
def test_schedules_at_the_first_and_last_epoch(stacked: bool) -> None:
    ends = {"w": 10.0, "b": -8.0, "mu": 0.8, "sigma": 0.5}
    start = {"w": 0.0, "b": -2.0, "mu": 0.5, "sigma": 2.0}

    def at(variant: str, epoch: int, epochs: int = 8) -> dict[str, float]:
        criterion = onelabel.method(
            "gr", variant=variant, **({k: [v, v] for k, v in ends.items()} if stacked else ends)
        )
        criterion.begin_epoch(epoch, epochs)
        return {k: criterion.now(k).flatten()[-1].item() for k in ends}

    def between(share: dict[str, float]) -> dict[str, float]:
        return {k: start[k] + (ends[k] - start[k]) * share[k] for k in ends}

    assert at("paper", 0) == pytest.approx(start)
    assert at("paper", 7) == pytest.approx(ends)
    assert at("paper", 3) == pytest.approx(between(dict.fromkeys(ends, 3 / 7)))
    assert at("paper", 0, 1) == pytest.approx(start)
    assert at("reference", 0) == pytest.approx(between({"w": 0, "b": 0, "mu": 1 / 8, "sigma": 1 / 8}))
    assert at("reference", 7) == pytest.approx(between({"w": 7 / 8, "b": 7 / 8, "mu": 1, "sigma": 1}))


def test_a_start_of_ones_own() -> None:
    criterion = onelabel.method("gr", start={"b": -3.0, "mu": 0.1})
    assert [criterion.now(k).item() for k in ("w", "b", "mu", "sigma")] == pytest.approx([0.0, -3.0, 0.1, 2.0])
    with pytest.raises(ValueError, match="start takes w, b, mu, sigma, got beta"):
        onelabel.method("gr", start={"beta": 1.0})
    with pytest.raises(ValueError, match=r"start\['sigma'\] must lie in \[0.001, 1e\+06\], got 0"):
        onelabel.method("gr", start={"sigma": 0.0})


def test_the_schedule_is_restored_and_exact() -> None:
    criterion, other = (onelabel.method("gr", w=10.0, b=-8.0) for _ in range(2))
    criterion.begin_epoch(3, 8)
    other.load_state_dict(criterion.state_dict())
    for name in ("w", "b", "mu", "sigma"):
        assert torch.equal(criterion.now(name), other.now(name))
    # In float64 to float64's last digits.
    criterion(torch.zeros(1, 1, dtype=torch.float64), torch.zeros(1, 1))
    assert criterion.now("sigma").item() == 2 - 1.5 * (3 / 7)


@pytest.mark.parametrize("variant", ["paper", "reference"])
@pytest.mark.parametrize("stack", [None, 2])
def test_learning_its_numbers(batch: tuple[torch.Tensor, torch.Tensor], variant: str, stack: int | None) -> None:
    criterion = onelabel.method("gr", trainable=True, num_classes=9, variant=variant, stack=stack)
    learnt = dict(criterion.named_parameters())
    names = ("w", "b") if variant == "reference" else ("w", "b", "mu", "sigma")
    assert set(learnt) == {f"{n}_learned" for n in names}
    assert all(p.numel() == 9 * (stack or 1) for p in learnt.values())
    logits = batch[0].float() if stack is None else batch[0].float().expand(stack, 6, 9)
    (optimizer,) = criterion.optimizers(1e-5)
    assert isinstance(optimizer, torch.optim.SGD)
    assert {k: optimizer.defaults[k] for k in ("lr", "momentum", "weight_decay")} == {
        "lr": 0.1,
        "momentum": 0.9,
        "weight_decay": 0.001,
    }
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = criterion(logits, batch[1]).sum()
        loss.backward()
        assert all(p.grad.abs().sum() > 0 for p in learnt.values())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert onelabel.method("gr").optimizers(1.0) == []


def test_what_is_learnt_has_the_right_gradient_and_none_through_p(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    logits, observed = batch
    numbers = [torch.full((9,), x, dtype=torch.float64, requires_grad=True) for x in (1.0, -1.0, 0.4, 0.7)]

    def loss(*x: torch.Tensor) -> torch.Tensor:
        return gr(logits, observed, w=x[0], b=x[1], mu=x[2], sigma=x[3]).sum()

    assert torch.autograd.gradcheck(loss, numbers)
    # The logits' gradient is that of the curves alone, k̂ and v being constants.
    moving = logits.clone().requires_grad_()
    gr(moving, observed, w=numbers[0], b=numbers[1], mu=numbers[2], sigma=numbers[3]).sum().backward()
    p = logits.sigmoid()
    k, v = torch.sigmoid(p - 1), torch.exp(-((p - 0.4) ** 2) / (2 * 0.49))
    want = v * ((1 - k) * (1 - p) * p - k * p**0.01 * (1 - p))
    unknown = observed == 0
    torch.testing.assert_close(moving.grad[unknown], want[unknown])


def test_learning_needs_the_number_of_classes() -> None:
    with pytest.raises(ValueError, match="trainable=True learns per class: give num_classes="):
        onelabel.method("gr", trainable=True)


def test_what_half_precision_may_approximate() -> None:
    assert GR().gentle
    for hyper in ({"w": 10.0}, {"b": -8.0}, {"q2": 0.5}, {"start": {"w": 3.0}}, {"w": [2.0, 5.0]}, {"w": -1.0}):
        assert not GR(**hyper).gentle, hyper
