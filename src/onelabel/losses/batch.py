"""Losses of a whole batch: pairwise ranking, expected-positive regularisation, weight penalties."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from onelabel.contract import Batch, Hyper, Method, Needs, Number, Variant, check_k, register
from onelabel.kernels import form as f
from onelabel.kernels.form import Curve, Form, nll
from onelabel.losses import fused
from onelabel.losses.baselines import an, bce
from onelabel.losses.curves import against, cost, pick

ROLE = "Cole et al., Multi-Label Learning from Single Positive Labels"
#: Σp, the mean over rows.
_P = Curve(f.PROBABILITY, (1.0,))
COUNT = Form(_P, _P, _P, by_rows=True)
EM = "Zhou et al., Acknowledging the Unknown for Multi-label Learning with Single Positive Labels"


def pairwise_ranking(logits: Tensor, observed: Tensor) -> Tensor:
    """Σ over (i: z_i=+1, j: z_j=0) of max(0, 1 − p_i + p_j), per row: ... × B.

    Probabilities keep 1 − p_i + p_j above 0, so the hinge never bends and the double sum falls apart into

        n₀·Σ_i (1 − p_i) + n₊·Σ_j p_j

    with n₊, n₀ the numbers of positive and unknown entries in the row: L terms a row instead of L².
    """
    positives, unknowns = (mask.sum(-1, keepdim=True).to(logits.dtype) for mask in (observed > 0, observed == 0))
    weight = pick(observed, like=logits, positive=unknowns, unknown=positives, negative=0.0)
    return (weight * torch.sigmoid(against(observed > 0, logits))).sum(-1)


def expected_positives_penalty(p: Tensor, k: Number) -> Tensor:
    """((k̂_B − k)/L)², k̂_B the mean over rows of Σ_i p_i: a scalar, or M in a stack."""
    return ((p.sum(-1).mean(-1) - k) / p.shape[-1]) ** 2


def ranking_form(positive: Tensor, negative: Tensor, num_classes: int, *, by_rows: bool) -> Form:
    """Pairwise ranking entry by entry, given the numbers of observed positives and negatives of each row."""
    # Counts are divided by L, and the sum multiplied by it, to stay within half precision.
    rows = torch.stack([num_classes - positive - negative, positive, torch.ones_like(positive)]).double()
    p, scale = Curve(f.PROBABILITY, (1.0,)), float(num_classes)
    return Form(p.mirrored(), p, nll().mirrored(), by_rows=by_rows, rows=rows / scale, factor=scale)


def known_form(method: Method) -> Form:
    """EPR's cost of observed entries: summed over classes, in "reference" divided by L too."""
    return Form(nll(eps=method.eps), Curve(), nll(eps=method.eps).mirrored(), by_rows=method.variant == "paper")


@register(
    "pr",
    title="Pairwise ranking",
    paper=ROLE,
    year=2021,
    formula="Σ over (i: z=+1, j: z=0) of max(0, 1 − p_i + p_j), per row, mean over rows",
)
class PairwiseRanking(Method):
    """Pairwise ranking: each positive should exceed each unknown entry of its row. "reference" divides by B·L."""

    def __init__(self, *, variant: Variant = "paper", stack: int | None = None) -> None:
        super().__init__(variant=variant, stack=stack)

    def compute(self, batch: Batch) -> Tensor:
        logits, observed = batch.logits, batch.observed
        if not fused.chosen(logits):
            return self._expression(logits, observed)
        seen, difference = (x.sum(-1, dtype=torch.float32) for x in (observed * observed, observed))
        positive, negative = (seen + difference) / 2, (seen - difference) / 2
        form = ranking_form(positive, negative, logits.shape[-1], by_rows=self.variant == "paper")
        return fused.mean(form, logits, observed, self._expression)

    def _expression(self, logits: Tensor, observed: Tensor) -> Tensor:
        # Observed negatives keep their cost, so that all that is known is used.
        known = cost(logits).masked_fill(observed >= 0, 0.0).sum(-1)
        loss = (pairwise_ranking(logits, observed) + known).mean(-1)
        return loss / logits.shape[-1] if self.variant == "reference" else loss


@register(
    "epr",
    title="Expected positive regularisation",
    paper=ROLE,
    year=2021,
    formula="mean over rows of −Σ_{z=+1} log p, plus λ·((k̂_B − k)/L)²",
)
class EPR(Method):
    """Expected positive regularisation: the batch should hold k positives a row on average."""

    hyper: ClassVar = {
        "expected_positives": Hyper("k, the mean number of positives", 0, 1e9, (1.5,)),
        "lam": Hyper("weight of the regulariser", 0, 1e6, (1.0,)),
    }

    def __init__(
        self,
        *,
        expected_positives: Any = 1.5,
        lam: Any = 1.0,
        variant: Variant = "paper",
        stack: int | None = None,
    ) -> None:
        super().__init__(expected_positives=expected_positives, lam=lam, variant=variant, stack=stack)

    def compute(self, batch: Batch) -> Tensor:
        logits, observed = batch.logits, batch.observed
        check_k(self._hyper["expected_positives"], logits.shape[-1])
        loss = fused.mean(known_form(self), logits, observed, self._known)
        count = fused.mean(COUNT, logits, observed, lambda g, z: torch.sigmoid(g).sum(-1).mean(-1))
        gap = (count - self.column(self.expected_positives)) / logits.shape[-1]
        return loss + self.column(self.lam) * gap**2

    def _known(self, logits: Tensor, observed: Tensor) -> Tensor:
        loss = bce(logits, observed, eps=self.eps).sum(-1).mean(-1)
        return loss / logits.shape[-1] if self.variant == "reference" else loss


@register(
    "l1r",
    title="Assume negative with an L1 penalty",
    paper=EM,
    year=2022,
    order=1,
    strength=1e-6,
    formula="an + c·‖θ‖₁",
)
@register(
    "l2r",
    title="Assume negative with a squared L2 penalty",
    paper=EM,
    year=2022,
    order=2,
    strength=1e-6,
    formula="an + c·‖θ‖₂²",
)
class Penalised(Method):
    """Assume negative plus c·‖θ‖₁ or c·‖θ‖₂² over the trainable weights given as `weights=`.

    In a stack every weight carries the models in its first dimension.
    """

    hyper: ClassVar = {"strength": Hyper("c", 0, 1, (1e-9, 1e-8, 1e-7, 1e-6, 1e-5))}

    def __init__(self, *, order: int = 1, strength: Any = 1e-6, stack: int | None = None) -> None:
        if order not in (1, 2):
            raise ValueError(f"order must be 1 or 2, got {order}")
        super().__init__(strength=strength, stack=stack)
        self.order = order

    @property
    def needs(self) -> Needs:
        return Needs(weights=True)

    def compute(self, batch: Batch) -> Tensor:
        first = 0 if self.stack is None else 1
        # Half precision overflows in such a sum, and its squares underflow.
        full = [w.float() if w.dtype in (torch.float16, torch.bfloat16) else w for w in batch.weights]
        flat = [w.flatten(first) if w.ndim > first else w.unsqueeze(-1) for w in full]
        size = sum((w.abs() if self.order == 1 else w**2).sum(-1) for w in flat)
        return self.reduce(an(batch.logits, batch.observed)) + self.column(self.strength) * size
