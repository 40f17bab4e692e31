"""Large loss matters (Kim et al. 2022): the unknown entries that cost most are likely missed positives."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from onelabel.contract import Batch, Hyper, Needs, register
from onelabel.losses.baselines import an
from onelabel.losses.curves import nll
from onelabel.methods.memory import Remembering
from onelabel.methods.optim import summed
from onelabel.methods.selection import lowest

if TYPE_CHECKING:
    from onelabel.labels import Labels

PAPER = "Kim et al., Large Loss Matters in Weakly Supervised Multi-Label Classification"


@register(
    "ll-cp",
    title="Large loss, permanent correction",
    paper=PAPER,
    year=2022,
    scheme="permanent",
    delta=0.1,
    formula="an, where from epoch 1 on each step makes the largest Δ% of unknown losses positive for good",
)
@register(
    "ll-ct",
    title="Large loss, temporary correction",
    paper=PAPER,
    year=2022,
    scheme="temporary",
    formula="an, where in epoch t the largest t·Δ% of unknown losses of the batch count as positive",
)
@register(
    "ll-r",
    title="Large loss, rejection",
    paper=PAPER,
    year=2022,
    scheme="reject",
    formula="an, where in epoch t the largest t·Δ% of unknown losses of the batch are dropped",
)
class LargeLoss(Remembering):
    """Assume negative, but in each batch the unknown entries with the largest loss are not believed.

    In 0-based epoch t the ⌈B·L·fraction⌉ largest of the batch's unknown losses are dropped ("reject"), cost −log p this
    once ("temporary") or for good ("permanent"): fraction = t·Δ, for "permanent" Δ; nothing at t = 0. Δ is in percent.
    The authors' program drops or corrects all entries tied with the last one and keeps one less of "permanent" than
    it corrects; here both are exactly the number above.
    """

    hyper: ClassVar = {"delta": Hyper("Δ, percent of the batch's entries", 0, 100, (0.1, 0.2, 0.3, 0.4, 0.5))}
    fraction: Tensor
    flipped: Tensor

    def __init__(
        self,
        *,
        delta: Any = 0.2,
        scheme: Literal["reject", "temporary", "permanent"] = "reject",
        stack: int | None = None,
    ) -> None:
        if scheme not in ("reject", "temporary", "permanent"):
            raise ValueError(f"scheme must be 'reject', 'temporary' or 'permanent', got {scheme!r}")
        super().__init__(delta=delta, scheme=scheme, stack=stack)
        lead = () if self.stack is None else (self.stack,)
        self.register_buffer("fraction", torch.zeros(lead, dtype=torch.float64))
        self.register_buffer("flipped", None)

    @property
    def needs(self) -> Needs:
        return Needs(index=self.scheme == "permanent", epoch=True)

    def allocate(self, labels: Labels) -> None:
        if self.scheme == "permanent":
            self.flipped = self.remembered(0, torch.int8)

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        super().begin_epoch(epoch, epochs)
        times = min(epoch, 1) if self.scheme == "permanent" else epoch
        share = torch.tensor([min(times * delta / 100, 1.0) for delta in self.each("delta")], dtype=torch.float64)
        self.fraction.copy_(share.reshape(self.fraction.shape), non_blocking=True)

    def _most(self, entries: int) -> int:
        """How many of a batch's entries are chosen in the last epoch: a captured step serves all epochs."""
        times = 1 if self.scheme == "permanent" else self.epochs - 1
        return math.ceil(min(times * max(self.each("delta")) / 100, 1.0) * entries)

    def compute(self, batch: Batch) -> Tensor:
        logits, observed = batch.logits, batch.observed
        rows = None
        if self.scheme == "permanent":
            assert batch.index is not None
            rows = self.rows(batch.index)
            known = self.recall(self.flipped, rows)
            observed = torch.where((known > 0) & (observed == 0), 1, observed)
        cost = an(logits, observed)
        # The sliver keeps t·Δ·B·L, a whole number up to its last bits, from being rounded up to the next one.
        count = torch.ceil(self.fraction * (logits.shape[-2] * logits.shape[-1]) - 1e-6)
        eligible = (observed == 0).expand_as(cost).flatten(-2)
        chosen = lowest(-cost.detach().flatten(-2), eligible, count, most=self._most(eligible.shape[-1]), dim=-1)
        chosen = chosen.reshape(cost.shape)
        if rows is not None and self.training:
            with torch.no_grad():
                fresh = summed(rows.flatten(), chosen.flatten(0, -2).to(torch.int32)).reshape(chosen.shape) > 0
                self.remember(self.flipped, rows, (known > 0) | fresh)
        instead = torch.zeros_like(cost) if self.scheme == "reject" else nll(logits)
        return self.reduce(torch.where(chosen, instead, cost))

    def flipped_labels(self) -> Tensor:
        """Which entries "permanent" has made positive so far: N×L, or M×N×L in a stack."""
        self.check_bound()
        return self.flipped > 0
