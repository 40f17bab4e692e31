"""LASD: leveraged asymmetric loss with disambiguation, and its consistency term."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from onelabel.contract import Batch, Hyper, Needs, Number, check_k, register
from onelabel.losses.curves import against, focused, pick, same, scale
from onelabel.losses.module import ElementWise

PAPER = "LASD, Leveraged Asymmetric Loss with Disambiguation for Recognition with One-Positive Annotations"


def lasd(
    logits: Tensor,
    observed: Tensor,
    *,
    lam_positive: Number,
    lam_negative: Number,
    tau: Number = 0.9,
    gamma_positive: Number = 0.0,
    gamma_negative: Number = 4.0,
) -> Tensor:
    """(1−p)^γ₊(−log p) where z=+1; where z=0

        1[p>τ]·λ₊·(1−p)^γ₊(−log p) + 1[p≤τ]·λ₋·p^γ₋(−log(1−p)).

    λ₊=λ₋=1 is SPLC without its margin, λ₊=λ₋=τ=1 is ASL without its shift.
    """
    positive = observed > 0
    weight, exponent = lam_negative, gamma_negative  # of the unknown
    if isinstance(tau, Tensor) or tau < 1:
        found = (torch.sigmoid(logits.detach()) > tau) & (observed == 0)
        positive = positive | found
        weight = pick(found, like=logits, positive=lam_positive, unknown=weight, negative=weight)
        exponent = pick(found, like=logits, positive=gamma_positive, unknown=exponent, negative=exponent)
    weight = pick(observed, like=logits, positive=1.0, unknown=weight)
    exponent = pick(observed, like=logits, positive=gamma_positive, unknown=exponent, negative=0.0)
    return scale(weight, focused(against(positive, logits), exponent))


def consistency(views: Sequence[Tensor]) -> Tensor:
    """Σ over pairs of views ‖f−f′‖², squared L2 over classes of probabilities, mean over the batch."""
    p = [torch.sigmoid(view) for view in views]
    return torch.stack([((a - b) ** 2).sum(-1).mean(-1) for a, b in combinations(p, 2)]).sum(0)


def balanced_weight(k: Number, num_classes: int, lam_positive: Number) -> Number:
    """λ₋ = (1 + λ₊(k−1)) / (L−k), which balances both signs (Theorem 5.4), k the mean number of positives."""
    return (1 + lam_positive * (k - 1)) / (num_classes - k)


@register(
    "las",
    title="Leveraged asymmetric loss",
    paper=PAPER,
    year=2024,
    fixed={"lam_positive": 0.0, "tau": 1.0, "alpha": 0.0},
    formula="(1−p)^γ₊(−log p) on positives, λ·p^γ₋(−log(1−p)) on unknown, λ = 1/(L−k)",
)
@register(
    "lasd",
    title="Leveraged asymmetric loss with disambiguation",
    paper=PAPER,
    year=2024,
    formula="(1−p)^γ₊(−log p) on positives; unknown: 1[p>τ]·λ₊·(1−p)^γ₊(−log p) + 1[p≤τ]·λ₋·p^γ₋(−log(1−p)); "
    "+ α·consistency of three views",
)
class LASD(ElementWise):
    """LASD. λ₋ follows from λ₊ and k unless it is given; α weighs the consistency of three views (0 leaves it out)."""

    reduction: Literal["entries", "rows"] = "rows"
    hyper: ClassVar = {
        "lam_positive": Hyper("λ₊", 0, 1, (0.005, 0.015, 0.03, 0.1)),
        "lam_negative": Hyper("λ₋, None for Theorem 5.4's", 0, 1e6),
        "expected_positives": Hyper("k, the mean number of positives", 0, 1e9, (1.5,)),
        "tau": Hyper("confidence above which an unknown entry counts as positive", 0, 1, (0.9, 0.93, 0.95)),
        "alpha": Hyper("weight of the consistency", 0, 100, (0.03, 0.1, 0.15, 0.7)),
        "gamma_positive": Hyper("focusing exponent of positives", 0, 20),
        "gamma_negative": Hyper("focusing exponent of the unknown", 0, 20),
    }

    def __init__(
        self,
        *,
        lam_positive: Any = 0.1,
        lam_negative: Any = None,
        expected_positives: Any = 1.5,
        tau: Any = 0.9,
        alpha: Any = 0.7,
        gamma_positive: Any = 0.0,
        gamma_negative: Any = 4.0,
        stack: int | None = None,
    ) -> None:
        super().__init__(
            lam_positive=lam_positive,
            lam_negative=lam_negative,
            expected_positives=expected_positives,
            tau=tau,
            alpha=alpha,
            gamma_positive=gamma_positive,
            gamma_negative=gamma_negative,
            stack=stack,
        )
        self._views = 1 if same(self.alpha, 0.0) else 3

    @property
    def needs(self) -> Needs:
        return Needs(views=self._views)

    def entries(self, logits: Tensor, observed: Tensor) -> Tensor:
        lam_negative = self.lam_negative
        if lam_negative is None:
            check_k(self._hyper["expected_positives"], logits.shape[-1], below=True)
            lam_negative = balanced_weight(self.expected_positives, logits.shape[-1], self.lam_positive)
        return lasd(
            logits,
            observed,
            lam_positive=self.lam_positive,
            lam_negative=lam_negative,
            tau=self.tau,
            gamma_positive=self.gamma_positive,
            gamma_negative=self.gamma_negative,
        )

    def compute(self, batch: Batch) -> Tensor:
        loss = super().compute(batch)
        if batch.views:
            loss = loss + self.column(self.alpha) * consistency([batch.logits, *batch.views])
        return loss
