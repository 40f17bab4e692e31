"""Expected negatives (Verelst et al. 2023): per class, as many unknown entries are ignored as positives are missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from onelabel.contract import Batch, Hyper, Needs, check_k, register
from onelabel.losses.curves import nll, unified
from onelabel.methods.memory import Remembering
from onelabel.methods.optim import summed
from onelabel.methods.selection import lowest

if TYPE_CHECKING:
    from onelabel.labels import Labels

PAPER = "Verelst et al., Spatial Consistency Loss for Training Multi-Label Classifiers from Single-Label Annotations"
IGNORED, EXPECTED, POSITIVE, NEGATIVE = 0, 1, 2, 3  #: states of an entry; the last two are observed
UNSEEN = -1.0


@register(
    "en",
    title="Expected negative",
    paper=PAPER,
    year=2023,
    formula="−log p on positives; −log(1−p) on the N−N_c entries of class c with the lowest running average of p",
)
class ExpectedNegative(Remembering):
    """Expected negative loss: the entries of a class least believed so far count as negative, the rest is ignored.

    A running average of every entry's probability is kept, average ← decay·average + (1−decay)·p, from what the
    training steps see. At the start of each epoch the N−N_c examples of class c with the lowest average are its
    expected negatives. N_c is `class_positives[c]`, or else k times the share of the observed positives that are of
    class c: N·k·n_c/Σn (with one positive a row, n_c·k).

    Our reading, for want of the authors' program: the average starts at the first probability seen; known positives
    are part of N_c and never expected negatives, known negatives are the first of them; the first `warmup` epochs,
    while there is no average yet, assume negative. The paper's spatial consistency keeps a running heat map per
    class; of logits alone its image-level form is left: `alpha` times the squared distance, over classes, between the
    probabilities of each of `views` pictures and the running average.
    """

    hyper: ClassVar = {
        "expected_positives": Hyper("k, the mean number of positives", 0, 1e9, (1.5,)),
        "decay": Hyper("how much of the running average stays", 0, 1, (0.8, 0.9)),
        "warmup": Hyper("epochs that assume negative", 0, 1e6, (1,)),
        "alpha": Hyper("weight of the consistency", 0, 100, (0.0, 0.1, 1.0)),
    }
    average: Tensor
    state: Tensor

    def __init__(
        self,
        *,
        expected_positives: Any = 1.5,
        class_positives: Sequence[float] | Tensor | None = None,
        decay: Any = 0.9,
        warmup: Any = 1,
        alpha: Any = 0.0,
        views: int = 1,
        stack: int | None = None,
    ) -> None:
        super().__init__(expected_positives=expected_positives, decay=decay, warmup=warmup, alpha=alpha, stack=stack)
        self.class_positives = None if class_positives is None else torch.as_tensor(class_positives).double()
        if views < 1:
            raise ValueError(f"views must be at least 1, got {views}")
        self.pictures = views if isinstance(self.alpha, Tensor) or self.alpha else 1
        self.register_buffer("average", None)
        self.register_buffer("state", None)
        self.register_buffer("quota", None, persistent=False)

    @property
    def needs(self) -> Needs:
        return Needs(index=True, epoch=True, views=self.pictures)

    def allocate(self, labels: Labels) -> None:
        self.average = self.remembered(UNSEEN, torch.float32)
        self.state = self.remembered(EXPECTED, torch.int8)
        self.mark(self.state, labels, positive=POSITIVE, negative=NEGATIVE)
        n, classes = self.size
        if self.class_positives is not None:
            positives = self.class_positives
            if tuple(positives.shape) != (classes,) or positives.min() < 0 or positives.max() > n:
                raise ValueError(f"class_positives must hold {classes} numbers in [0, {n}], got {positives.tolist()}")
        else:
            check_k(self._hyper["expected_positives"], classes)
            seen = torch.from_numpy(labels.counts().positives.copy()).double()
            k = torch.tensor(self.each("expected_positives"), dtype=torch.float64)
            positives = (k[:, None] if self.stack else k) * n * seen / seen.sum().clamp(min=1)
        self.quota = torch.floor(n - positives.clamp(max=n) + 1e-6).to(self.state.device)

    @torch.no_grad()
    def begin_epoch(self, epoch: int, epochs: int) -> None:
        super().begin_epoch(epoch, epochs)
        self.check_bound()
        ready = [epoch >= warmup for warmup in self.each("warmup")]
        if any(ready):
            believed = self.average.masked_fill(self.state == NEGATIVE, -torch.inf)
            chosen = lowest(believed, self.state != POSITIVE, self.quota)
            if self.stack is not None:
                chosen = chosen | ~torch.tensor(ready).to(chosen.device, non_blocking=True)[:, None, None]
            self.state.copy_(torch.where(self.state < POSITIVE, chosen.to(torch.int8), self.state))

    def compute(self, batch: Batch) -> Tensor:
        assert batch.index is not None
        logits, observed = batch.logits, batch.observed
        rows = self.rows(batch.index)
        expected = self.recall(self.state, rows) == EXPECTED
        negative = nll(-logits)
        unknown = torch.where(expected, negative, 0.0)
        loss = self.reduce(unified(observed, positive=nll(logits), unknown=unknown, negative=negative))
        average = self.recall(self.average, rows)
        if isinstance(self.alpha, Tensor) or self.alpha:
            gaps = [(torch.sigmoid(g) - average) ** 2 for g in (logits, *batch.views)]
            apart = torch.where(average == UNSEEN, 0.0, torch.stack(gaps).mean(0)).sum(-1).mean(-1)
            loss = loss + self.column(self.alpha) * apart
        if self.training:
            self.follow(rows, average, torch.sigmoid(logits.detach()))
        return loss

    @torch.no_grad()
    def follow(self, rows: Tensor, average: Tensor, p: Tensor) -> None:
        """Move the running average towards `p`; an example that occurs twice in the batch moves once, to their mean."""
        flat = p.flatten(0, -2).to(average.dtype)
        ones = torch.ones_like(flat[:, :1])
        mean = (summed(rows.flatten(), flat) / summed(rows.flatten(), ones)).reshape(p.shape)
        moved = torch.where(average == UNSEEN, mean, self.decay * average + (1 - self.decay) * mean)
        self.remember(self.average, rows, moved)

    def expected_negatives(self) -> Tensor:
        """Which unknown entries count as negative this epoch: N×L, or M×N×L in a stack."""
        self.check_bound()
        return self.state == EXPECTED
