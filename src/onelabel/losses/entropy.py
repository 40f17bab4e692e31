"""Entropy maximisation and its opposite (Zhou et al. 2022)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from onelabel.contract import Hyper, Number, Variant, register
from onelabel.losses.curves import cost, entropy, nll, unified
from onelabel.losses.module import ElementWise

PAPER = "Zhou et al., Acknowledging the Unknown for Multi-label Learning with Single Positive Labels"


def em(logits: Tensor, observed: Tensor, *, alpha: Number = 0.2, eps: float = 0.0) -> Tensor:
    """−log p where z=+1, −α·H(p) where z=0, −log(1−p) where z=−1.

    The gradient on an unknown entry is α·g·p·(1−p): nothing at p = ½, a push back towards ½ elsewhere that fades where
    the model is sure. The loss may be negative. ``alpha`` below 0 minimises the entropy instead.
    """
    if eps:
        return unified(
            observed,
            positive=nll(logits, eps=eps),
            unknown=entropy(logits, eps=eps),
            weight=-alpha,
            negative=nll(-logits, eps=eps),
        )
    # H(p) = cost(u) − u·σ(u) at u = −|g|, where no term cancels another; so one curve serves all three labels.
    unknown = observed == 0
    u = -logits * torch.where(unknown, logits.detach().sign(), observed.to(logits.dtype))
    loss = cost(u)
    return torch.where(unknown, alpha * (u * torch.sigmoid(u) - loss), loss)


@register(
    "em",
    title="Entropy maximisation",
    paper=PAPER,
    year=2022,
    formula="−log p on positives, −α·H(p) on unknown",
)
class EM(ElementWise):
    """Entropy maximisation: acknowledge that the unknown is unknown."""

    hyper: ClassVar = {"alpha": Hyper("weight of the entropy", 0, 10, (0.01, 0.02, 0.1, 0.2, 0.4, 0.9))}

    def __init__(self, *, alpha: Any = 0.2, variant: Variant = "paper", stack: int | None = None) -> None:
        super().__init__(alpha=alpha, variant=variant, stack=stack)

    def entries(self, logits: Tensor, observed: Tensor) -> Tensor:
        return em(logits, observed, alpha=self.alpha, eps=self.eps)


@register(
    "entmin",
    title="Entropy minimisation (a control that collapses)",
    paper=PAPER,
    year=2022,
    formula="−log p on positives, +α·H(p) on unknown",
)
class EntMin(EM):
    """Entropy minimisation, the opposite of EM, kept as a control."""

    def entries(self, logits: Tensor, observed: Tensor) -> Tensor:
        return em(logits, observed, alpha=-self.alpha, eps=self.eps)
