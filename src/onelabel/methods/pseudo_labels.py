"""EM with asymmetric pseudo-labelling (Zhou et al. 2022, Sec. 3.3)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from onelabel.contract import Batch, Hyper, Needs, Score, Variant, register
from onelabel.losses.curves import nll, soft
from onelabel.losses.entropy import em
from onelabel.methods.memory import Remembering
from onelabel.methods.selection import lowest

if TYPE_CHECKING:
    from onelabel.labels import Labels

PAPER = "Zhou et al., Acknowledging the Unknown for Multi-label Learning with Single Positive Labels"
OPEN, SEEN = -1.0, -2.0  #: in the memory of soft targets: still unknown, observed


@register(
    "em-apl",
    title="Entropy maximisation with asymmetric pseudo-labelling",
    paper=PAPER,
    year=2022,
    formula="em; after T_w epochs the lowest-scoring ⌊θ·U_c/(T−T_w)⌋ unknown entries of each class become negative for "
    "good every epoch and cost β·[−s log p − (1−s) log(1−p)], s their score then",
)
class EMAPL(Remembering):
    """EM, and after `warmup` epochs ever more negative pseudo-labels, each with its score as soft target.

    At the end of 1-based epochs T_w … T−1 the training set is scored and in each class the ⌊θ·U_c/(T−T_w)⌋ lowest of
    the entries still unknown are labelled. U_c counts the class's unknown entries at the start, as in the authors'
    program and supplement, so that a share θ is reached; ``count="current"`` takes it anew every time, as the paper's
    text may be read. Ablations: ``soft=False`` (hard targets), ``beta=1``, ``proportion=0.1`` and
    ``positive_proportion=0.1`` (the highest-scoring become positive in the same way, after the negatives).
    """

    hyper: ClassVar = {
        "alpha": Hyper("weight of the entropy", 0, 10, (0.01, 0.02, 0.1, 0.2, 0.4, 0.9)),
        "beta": Hyper("weight of pseudo-labels", 0, 10, (0.01, 0.02, 0.1, 0.2, 0.4, 0.9)),
        "proportion": Hyper("θ, the share of a class's unknown entries that become negative", 0, 1, (0.9,)),
        "positive_proportion": Hyper("the share that become positive", 0, 1, (0.0,)),
        "warmup": Hyper("T_w, epochs of plain EM", 0, 1e6, (3, 4, 5)),
    }
    targets: Tensor
    unknown: Tensor

    def __init__(
        self,
        *,
        alpha: Any = 0.2,
        beta: Any = 0.02,
        proportion: Any = 0.9,
        positive_proportion: Any = 0.0,
        warmup: Any = 5,
        soft: bool = True,
        count: Literal["start", "current"] = "start",
        variant: Variant = "paper",
        stack: int | None = None,
    ) -> None:
        if count not in ("start", "current"):
            raise ValueError(f"count must be 'start' or 'current', got {count!r}")
        super().__init__(
            alpha=alpha,
            beta=beta,
            proportion=proportion,
            positive_proportion=positive_proportion,
            warmup=warmup,
            soft=soft,
            count=count,
            variant=variant,
            stack=stack,
        )
        self.register_buffer("targets", None)
        self.register_buffer("unknown", None, persistent=False)

    @property
    def needs(self) -> Needs:
        return Needs(index=True, epoch=True, scores=True)

    def allocate(self, labels: Labels) -> None:
        self.targets = self.remembered(OPEN, torch.float32)
        self.mark(self.targets, labels, positive=SEEN, negative=SEEN)
        self.unknown = torch.from_numpy(labels.counts().unknown.copy()).to(self.targets.device)

    def compute(self, batch: Batch) -> Tensor:
        assert batch.index is not None
        logits, observed = batch.logits, batch.observed
        target = self.recall(self.targets, self.rows(batch.index)).to(logits.dtype)
        labelled = (target >= 0) & (observed == 0)
        pseudo = soft(target.clamp(min=0), nll(logits, eps=self.eps), nll(-logits, eps=self.eps))
        plain = em(logits, observed, alpha=self.alpha, eps=self.eps)
        return self.reduce(torch.where(labelled, self.beta * pseudo, plain))

    @torch.no_grad()
    def end_epoch(self, score: Score | None = None) -> None:
        shares = {name: self._quota(name) for name in ("proportion", "positive_proportion")}
        if not any(any(share) for share in shares.values()):
            return
        if score is None:
            raise ValueError("em-apl needs end_epoch(score): a function that scores the training set, N×L")
        scores = score().detach().to(self.targets.device, torch.float32)
        if scores.shape != self.targets.shape:
            raise ValueError(f"score() must give shape {tuple(self.targets.shape)}, got {tuple(scores.shape)}")
        # The current count is taken before either sign labels anything.
        unknown = self.unknown if self.count == "start" else (self.targets == OPEN).sum(-2)
        for name, sign, hard in (("proportion", 1, 0.0), ("positive_proportion", -1, 1.0)):
            if any(shares[name]):
                share = torch.tensor(shares[name], dtype=torch.float64).to(scores.device, non_blocking=True)
                share = share[0] if self.stack is None else share[:, None]
                quota = torch.floor(share * unknown + 1e-6)  # θ·U_c/(T−T_w) may miss a whole number by its last bits
                most = math.ceil(max(shares[name]) * self.size[0])
                chosen = lowest(sign * scores, self.targets == OPEN, quota, most=most)
                self.targets.copy_(torch.where(chosen, scores if self.soft else hard, self.targets))

    def _quota(self, name: str) -> list[float]:
        """The share of each class to label at the end of this epoch, one per model; 0 during the warm-up."""
        done = self.epoch + 1
        return [
            share / (self.epochs - warmup) if warmup <= done < self.epochs else 0.0
            for share, warmup in zip(self.each(name), self.each("warmup"), strict=True)
        ]

    def pseudo_labels(self) -> Tensor:
        """The soft target of every pseudo-labelled entry, NaN elsewhere: N×L, or M×N×L in a stack."""
        self.check_bound()
        return torch.where(self.targets >= 0, self.targets, math.nan)
