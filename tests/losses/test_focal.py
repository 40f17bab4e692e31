"""Focal, ASL, Hill, SPLC: closed forms and the losses they become at special values."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import onelabel
from onelabel.losses import asl, hill, splc


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(1)
    logits = torch.randn(6, 9, generator=rng, dtype=torch.float64) * 4
    return logits, torch.randint(-1, 2, (6, 9), generator=rng, dtype=torch.int8)


def value(name: str, batch: tuple[torch.Tensor, torch.Tensor], *, epoch: int = 1, **hyper: object) -> torch.Tensor:
    """Loss and gradient, in one vector."""
    logits = batch[0].clone().requires_grad_()
    criterion = onelabel.method(name, **hyper)
    criterion.begin_epoch(epoch, 3)
    loss = criterion(logits, batch[1])
    loss.backward()
    return torch.cat([loss.detach().reshape(1), logits.grad.flatten()])


def test_known_cases(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    an = value("an", batch)
    for name, hyper in (
        ("fan", {"gamma": 0.0}),
        ("focal", {"gamma": 0.0, "alpha": None}),
        ("asl", {"gamma_negative": 0.0}),
        ("asl-ps", {"gamma_negative": 0.0, "margin": 0.0}),
    ):
        torch.testing.assert_close(value(name, batch, **hyper), an)
    torch.testing.assert_close(value("focal", batch, alpha=None), value("fan", batch))
    torch.testing.assert_close(value("asl", batch, gamma_positive=2.0, gamma_negative=2.0), value("fan", batch))
    torch.testing.assert_close(value("asl-ps", batch, margin=0.0), value("asl", batch))
    # A shift of next to nothing is next to no shift, so the two ways to evaluate it agree.
    torch.testing.assert_close(value("asl-ps", batch, margin=1e-13), value("asl", batch), rtol=1e-9, atol=1e-11)


def test_alpha_weighs_positives_and_unknown() -> None:
    logits = torch.tensor([[0.3, -1.2]], dtype=torch.float64)
    plain = onelabel.method("fan").entries(logits, torch.tensor([[1, 0]]))
    weighed = onelabel.method("focal").entries(logits, torch.tensor([[1, 0]]))
    torch.testing.assert_close(weighed, plain * torch.tensor([[0.75, 0.25]]))


def test_under_the_margin_nothing_is_paid_and_nothing_learnt() -> None:
    for gamma in (0.0, 0.3, 1.0, 4.0):
        logits = torch.logit(torch.tensor([[1e-30, 0.01, 0.049, 0.051]])).requires_grad_()
        loss = asl(logits, torch.zeros(1, 4), gamma_negative=gamma, margin=0.05)
        loss.sum().backward()
        assert (loss[0, :3].abs() < 1e-30).all()
        assert loss[0, 3] > 0
        assert (logits.grad[0, :3] == 0).all()
        assert logits.grad.isfinite().all()


@pytest.mark.parametrize("gamma", [0.01, 0.3, 0.999])
@pytest.mark.parametrize("margin", [0.0, 0.05, [0.0, 0.05]])
def test_exponents_below_one_have_finite_gradients_at_no_probability(gamma: float, margin: object) -> None:
    logits = torch.tensor([[-100.0, -90.0, 100.0, 0.0]])
    if isinstance(margin, list):
        logits = logits.expand(2, 1, 4)
    logits = logits.clone().requires_grad_()
    criterion = onelabel.method("asl", gamma_positive=gamma, gamma_negative=gamma, margin=margin)
    for label in (-1, 0, 1):
        loss = criterion(logits, torch.full((1, 4), label)).sum()
        assert loss.isfinite()
        assert torch.autograd.grad(loss, logits)[0].isfinite().all()


def test_detached_focus_leaves_the_value_and_drops_a_term(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    for margin in (0.0, 0.2):
        hyper = {"gamma_positive": 1.0, "gamma_negative": 2.0, "margin": margin}
        logits = batch[0].clone().requires_grad_()
        whole, detached = (asl(logits, batch[1], **hyper, detach_focus=d) for d in (False, True))
        torch.testing.assert_close(whole, detached)
        p = batch[0].sigmoid()
        shifted = (p - margin).clamp(min=0)
        # d/dg of −log(1−p_m) is p(1−p)/(1−p_m) above the margin.
        unknown = shifted**2 * (shifted > 0) * p * (1 - p) / (1 - shifted)
        want = torch.where(batch[1] > 0, -((1 - p) ** 2), torch.where(batch[1] < 0, p, unknown))
        torch.testing.assert_close(torch.autograd.grad(detached.sum(), logits)[0], want)


@settings(deadline=None, max_examples=100)
@given(x=st.floats(-40, 40))
def test_hills_slope_is_three_p2_one_minus_p_squared(x: float) -> None:
    logits = torch.tensor([[x]], dtype=torch.float64, requires_grad=True)
    onelabel.method("hill")(logits, torch.tensor([[0]])).backward()
    p = logits.detach().sigmoid()
    want = (3 * p**2 * torch.sigmoid(-logits.detach()) ** 2).item()
    assert logits.grad.item() == pytest.approx(want, rel=1e-6, abs=1e-15)


def test_hill_without_margin_pays_log_p(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    known = (batch[0], torch.where(batch[1] == 0, 1, batch[1]))
    torch.testing.assert_close(value("hill", known, margin=None), value("an", known))
    torch.testing.assert_close(value("splc", known, margin=None), value("an", known))
    # The paper's Hill with its margin 0 and no focus is log p too.
    torch.testing.assert_close(hill(*known, margin=0.0, gamma=0.0), hill(*known, margin=None))


def test_the_focal_margin() -> None:
    g = torch.tensor([[0.4]], dtype=torch.float64)
    q = torch.sigmoid(g - 1).item()
    for name in ("hill", "splc"):
        got = onelabel.method(name)(g, torch.tensor([[1]])).item()
        assert got == pytest.approx((1 - q) ** 2 * -math.log(q), rel=1e-13)


def test_splc_corrects_from_its_epoch_on(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    before, after = value("splc", batch, epoch=0), value("splc", batch, epoch=1)
    assert not torch.equal(before, after)
    torch.testing.assert_close(before, value("splc", batch, tau=1.0))
    torch.testing.assert_close(value("splc", batch, epoch=2), after)
    torch.testing.assert_close(value("splc", batch, epoch=2, start=3), before)
    torch.testing.assert_close(value("splc", batch, epoch=0, start=0), after)
    # A method that has not been told of an epoch has not started.
    torch.testing.assert_close(onelabel.method("splc")(*batch), before[0])


def test_splc_uses_tau_as_given_in_every_precision() -> None:
    """In float32, τ = 0.6 is a little more than 0.6."""
    p = torch.tensor([[0.6 + 1e-9, 0.6 - 1e-9]], dtype=torch.float64)
    unknown = torch.zeros(1, 2)
    for tau in (0.6, [0.6, 0.6]):
        criterion = onelabel.method("splc", tau=tau)
        criterion.begin_epoch(1, 2)
        logits = torch.logit(p) if tau == 0.6 else torch.logit(p).expand(2, 1, 2)
        logits = logits.clone().requires_grad_()
        criterion(logits, unknown).sum().backward()
        slope = logits.grad.reshape(-1, 2)[0]
        assert slope[0] < 0 < slope[1]


def test_splc_is_a_fold_at_tau(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Unknown entries above τ cost what a focal positive costs, below what a focal negative costs."""
    unknown = torch.zeros_like(batch[1])
    fan = onelabel.method("fan")
    want = torch.where(batch[0].sigmoid() > 0.6, fan.entries(batch[0], unknown + 1), fan.entries(batch[0], unknown))
    torch.testing.assert_close(splc(batch[0], unknown), want)
    hills = hill(batch[0], unknown)
    torch.testing.assert_close(
        splc(batch[0], unknown, negative="hill"),
        torch.where(batch[0].sigmoid() > 0.6, fan.entries(batch[0], unknown + 1), hills),
    )
    torch.testing.assert_close(splc(batch[0], unknown, negative="hill", correct=False), hills)


def test_splc_leaves_observed_labels_alone() -> None:
    sure = torch.tensor([[9.0, 9.0]])
    got = splc(sure, torch.tensor([[-1, 0]]))
    assert got[0, 0] == pytest.approx(9.0, rel=1e-3)
    assert got[0, 1] < 1e-9


def test_settings_must_be_known() -> None:
    with pytest.raises(ValueError, match="negative must be 'focal' or 'hill', got 'asl'"):
        onelabel.method("splc", negative="asl")
