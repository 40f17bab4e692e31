"""Losses that look harder at some entries: focal, ASL, Hill, SPLC."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from onelabel.contract import Hyper, Needs, Number, register
from onelabel.losses.curves import against, focused, pick, same, scale, shifted
from onelabel.losses.module import ElementWise

FOCAL = "Lin et al., Focal Loss for Dense Object Detection"
ASL_PAPER = "Ridnik et al., Asymmetric Loss for Multi-Label Classification"
HILL = "Zhang et al., Simple and Robust Loss Design for Multi-Label Learning with Missing Labels"


def focal(logits: Tensor, observed: Tensor, *, alpha: Number | None = 0.75, gamma: Number = 2.0) -> Tensor:
    """α(1−p)^γ(−log p) where z=+1, (1−α)p^γ(−log(1−p)) where z=0, −log(1−p) where z=−1.

    ``alpha=None`` leaves both weights out.
    """
    exponent = pick(observed, like=logits, positive=gamma, unknown=gamma, negative=0.0)
    loss = focused(against(observed > 0, logits), exponent)
    return loss if alpha is None else scale(pick(observed, like=logits, positive=alpha, unknown=1 - alpha), loss)


def asl(
    logits: Tensor,
    observed: Tensor,
    *,
    gamma_positive: Number = 0.0,
    gamma_negative: Number = 4.0,
    margin: Number = 0.0,
    detach_focus: bool = False,
) -> Tensor:
    """(1−p)^γ₊(−log p) where z=+1, p_m^γ₋(−log(1−p_m)) where z=0, p_m = max(p−m, 0); −log(1−p) where z=−1.

    `detach_focus` stops the gradient through the two focusing weights, as the original program does.
    """
    u = against(observed > 0, logits)
    if same(margin, 0.0):
        exponent = pick(observed, like=logits, positive=gamma_positive, unknown=gamma_negative, negative=0.0)
        return focused(u, exponent, detach=detach_focus)
    log_complement = shifted(logits, margin)
    # The smallest normal number instead of 0 keeps the derivative of x^γ finite for γ < 1.
    focus = (-torch.expm1(log_complement)).clamp(min=torch.finfo(logits.dtype).tiny) ** gamma_negative
    known = focused(
        u, pick(observed, like=logits, positive=gamma_positive, unknown=0.0, negative=0.0), detach=detach_focus
    )
    return torch.where(observed == 0, -(focus.detach() if detach_focus else focus) * log_complement, known)


def _with_margin(u: Tensor, observed: Tensor, *, margin: Number | None, gamma: Number, unknown: Number) -> Tensor:
    """Where z=+1 the focal margin (1−q)^γ(−log q), q = σ(g−m), or −log p for ``margin=None``; else `unknown` as γ."""
    if margin is not None:
        u = u + pick(observed, like=u, positive=margin, unknown=0.0, negative=0.0)
    exponent = pick(observed, like=u, positive=0.0 if margin is None else gamma, unknown=unknown, negative=0.0)
    return focused(u, exponent)


def hill(
    logits: Tensor, observed: Tensor, *, lam: Number = 1.5, margin: Number | None = 1.0, gamma: Number = 2.0
) -> Tensor:
    """Focal margin where z=+1, (λ−p)p² where z=0, −log(1−p) where z=−1.

    The focal margin is (1−q)^γ(−log q) with q = σ(g−m); ``margin=None`` is plain −log p.
    """
    known = _with_margin(against(observed > 0, logits), observed, margin=margin, gamma=gamma, unknown=0.0)
    return torch.where(observed == 0, _hill(logits, lam), known)


def _hill(logits: Tensor, lam: Number) -> Tensor:
    p = torch.sigmoid(logits)
    return (lam - p) * p**2


def splc(
    logits: Tensor,
    observed: Tensor,
    *,
    tau: Number = 0.6,
    margin: Number | None = 1.0,
    gamma: Number = 2.0,
    negative: str = "focal",
    correct: bool | Tensor = True,
) -> Tensor:
    """Self-paced correction: unknown entries with p > τ cost what a positive costs (not before `correct`).

    Where z=+1 the focal margin; where z=0 and p ≤ τ p^γ(−log(1−p)), or Hill's (1.5−p)p² with ``negative="hill"`` as the
    GR paper describes it; where z=0 and p > τ (1−p)^γ(−log p), without the margin.
    """
    unknown = observed == 0
    found = (torch.sigmoid(logits.detach()) > tau) & unknown & correct
    u = against((observed > 0) | found, logits)
    loss = _with_margin(u, observed, margin=margin, gamma=gamma, unknown=gamma)
    return torch.where(unknown & ~found, _hill(logits, 1.5), loss) if negative == "hill" else loss


@register(
    "fan",
    title="Focal assume negative, unweighted",
    paper=FOCAL,
    year=2017,
    fixed={"alpha": None},
    formula="(1−p)^γ(−log p) on positives, p^γ(−log(1−p)) on unknown",
)
@register(
    "focal",
    title="Focal loss",
    paper=FOCAL,
    year=2017,
    formula="α(1−p)^γ(−log p) on positives, (1−α)p^γ(−log(1−p)) on unknown",
)
class Focal(ElementWise):
    """Focal loss on assumed negatives."""

    hyper: ClassVar = {
        "alpha": Hyper("weight of positives", 0, 1, (0.25, 0.5, 0.75)),
        "gamma": Hyper("focusing exponent", 0, 20, (1.0, 2.0)),
    }

    def __init__(self, *, alpha: Any = 0.75, gamma: Any = 2.0, stack: int | None = None) -> None:
        super().__init__(alpha=alpha, gamma=gamma, stack=stack)

    def entries(self, logits: Tensor, observed: Tensor) -> Tensor:
        return focal(logits, observed, alpha=self.alpha, gamma=self.gamma)


@register(
    "asl-ps",
    title="Asymmetric loss with probability shift",
    paper=ASL_PAPER,
    year=2021,
    margin=0.05,
    formula="(1−p)^γ₊(−log p) on positives, p_m^γ₋(−log(1−p_m)) on unknown, p_m = max(p−m, 0)",
)
@register(
    "asl",
    title="Asymmetric loss",
    paper=ASL_PAPER,
    year=2021,
    formula="(1−p)^γ₊(−log p) on positives, p^γ₋(−log(1−p)) on unknown",
)
class ASL(ElementWise):
    """Asymmetric loss: easy unknown entries weigh less, those under the margin nothing."""

    hyper: ClassVar = {
        "gamma_positive": Hyper("focusing exponent of positives", 0, 20),
        "gamma_negative": Hyper("focusing exponent of the unknown", 0, 20, (1.0, 2.0, 4.0)),
        "margin": Hyper("probability shift m", 0, 1, (0.0, 0.05, 0.2)),
    }

    def __init__(
        self,
        *,
        gamma_positive: Any = 0.0,
        gamma_negative: Any = 4.0,
        margin: Any = 0.0,
        detach_focus: bool = False,
        stack: int | None = None,
    ) -> None:
        super().__init__(
            gamma_positive=gamma_positive,
            gamma_negative=gamma_negative,
            margin=margin,
            detach_focus=detach_focus,
            stack=stack,
        )

    def entries(self, logits: Tensor, observed: Tensor) -> Tensor:
        return asl(
            logits,
            observed,
            gamma_positive=self.gamma_positive,
            gamma_negative=self.gamma_negative,
            margin=self.margin,
            detach_focus=self.detach_focus,
        )


@register(
    "hill",
    title="Hill loss",
    paper=HILL,
    year=2021,
    formula="focal margin (1−q)^γ(−log q), q = σ(g−m), on positives, (λ−p)p² on unknown",
)
class Hill(ElementWise):
    """Hill loss: the cost of an unknown entry falls again where p nears 1, for it is likely a missed positive."""

    hyper: ClassVar = {
        "lam": Hyper("λ", 0, 10, (1.5,)),
        "margin": Hyper("margin m of positives, None for −log p", 0, 10, (1.0,)),
        "gamma": Hyper("focusing exponent of positives", 0, 20, (2.0,)),
    }

    def __init__(self, *, lam: Any = 1.5, margin: Any = 1.0, gamma: Any = 2.0, stack: int | None = None) -> None:
        super().__init__(lam=lam, margin=margin, gamma=gamma, stack=stack)

    def entries(self, logits: Tensor, observed: Tensor) -> Tensor:
        return hill(logits, observed, lam=self.lam, margin=self.margin, gamma=self.gamma)


@register(
    "splc",
    title="Self-paced loss correction",
    paper=HILL,
    year=2021,
    formula="focal margin on positives; unknown: 1[p≤τ]·p^γ(−log(1−p)) + 1[p>τ]·(1−p)^γ(−log p)",
)
class SPLC(ElementWise):
    """Self-paced loss correction: from epoch `start` (0-based) on, unknown entries with p > τ count as positive."""

    hyper: ClassVar = {
        "tau": Hyper("confidence above which an unknown entry counts as positive", 0, 1, (0.6,)),
        "margin": Hyper("margin m of positives, None for −log p", 0, 10, (1.0,)),
        "gamma": Hyper("focusing exponent", 0, 20, (2.0,)),
    }
    started: Tensor

    def __init__(
        self,
        *,
        tau: Any = 0.6,
        margin: Any = 1.0,
        gamma: Any = 2.0,
        start: int = 1,
        negative: str = "focal",
        stack: int | None = None,
    ) -> None:
        if negative not in ("focal", "hill"):
            raise ValueError(f"negative must be 'focal' or 'hill', got {negative!r}")
        super().__init__(tau=tau, margin=margin, gamma=gamma, stack=stack)
        self.start, self.negative = start, negative
        self.register_buffer("started", torch.tensor(False))

    @property
    def needs(self) -> Needs:
        return Needs(epoch=True)

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        self.started.fill_(epoch >= self.start)

    def entries(self, logits: Tensor, observed: Tensor) -> Tensor:
        return splc(
            logits,
            observed,
            tau=self.tau,
            margin=self.margin,
            gamma=self.gamma,
            negative=self.negative,
            correct=self.started,
        )
