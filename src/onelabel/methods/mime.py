"""MIME (Liu et al. 2023): pseudo-labels that stay, and a variational bottleneck in front of the classifier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from onelabel.contract import Batch, Hyper, Needs, Score, Variant, register
from onelabel.losses.baselines import an
from onelabel.methods.layers import Dense
from onelabel.methods.memory import Remembering

if TYPE_CHECKING:
    from onelabel.labels import Labels

PAPER = "Liu et al., Revisiting Pseudo-Label for Single-Positive Multi-Label Learning"
FOUND, OBSERVED = 1, 2  #: states of an entry; 0 is unknown


class BottleneckHead(nn.Module):
    """features → N(μ, σ²) of `width` numbers → a sample of it (its mean in eval mode) → logits."""

    def __init__(self, feature_dim: int, num_classes: int, *, width: int = 256, stack: int | None = None) -> None:
        super().__init__()
        self.width = width
        self.encode = Dense(stack, feature_dim, 2 * width)
        self.classify = Dense(stack, width, num_classes)

    def statistics(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """μ and log σ², the latter within ±12."""
        mean, log_variance = self.encode(features).split(self.width, dim=-1)
        return mean, log_variance.clamp(-12, 12)

    def forward(self, features: Tensor) -> Tensor:
        mean, log_variance = self.statistics(features)
        if self.training:
            mean = mean + torch.randn_like(mean) * torch.exp(log_variance / 2)
        return self.classify(mean)

    def kl(self, features: Tensor) -> Tensor:
        """KL(N(μ, σ²) ‖ N(0, 1)) of each of the `width` numbers: …×B×width."""
        mean, log_variance = self.statistics(features)
        return (mean**2 + torch.exp(log_variance) - log_variance - 1) / 2


@register(
    "mime",
    title="Pseudo-labels that stay, behind a variational bottleneck",
    paper=PAPER,
    year=2023,
    formula="an on the labels so far, to which every epoch after T_w adds entries with p > τ as positive for good; "
    "+ β·KL of a variational bottleneck in front of the classifier",
)
class MIME(Remembering):
    """MIME: assume negative, but at the end of each epoch from the `warmup`-th on, unknown entries scored above `tau`
    become positive for good; the classifier sits behind a variational bottleneck whose KL weighs `beta`.

    The method supplies that classifier; it belongs to your model, which trains, saves and ships it:

        head = criterion.head(feature_dim, num_classes) or nn.Linear(feature_dim, num_classes)
        features = backbone(pictures)
        loss = criterion(head(features), observed, index=index, features=features)

    Without a head (``bottleneck=False``) it is plain pseudo-labelling. Our reading: the KL is summed over the
    bottleneck and averaged over rows; the authors' program averages over the bottleneck too (``variant="reference"``),
    keeps one bottleneck per class behind a transformer, and takes as many top-scoring entries as a class prior says.
    """

    hyper: ClassVar = {
        "tau": Hyper("probability above which an unknown entry becomes positive", 0, 1, (0.9, 0.95)),
        "beta": Hyper("weight of the KL", 0, 10, (1e-5, 1e-4, 1e-3)),
        "warmup": Hyper("epochs before the first pseudo-labels", 0, 1e6, (2, 5)),
    }
    flipped: Tensor

    def __init__(
        self,
        *,
        tau: Any = 0.95,
        beta: Any = 1e-4,
        warmup: Any = 2,
        width: int = 256,
        bottleneck: bool = True,
        variant: Variant = "paper",
        stack: int | None = None,
    ) -> None:
        super().__init__(tau=tau, beta=beta, warmup=warmup, variant=variant, stack=stack)
        self.width, self.bottleneck = int(width), bottleneck
        # In a tuple, so that it is not a part of this module: the model owns it.
        self._head: tuple[BottleneckHead, ...] = ()
        self.register_buffer("flipped", None)

    @property
    def needs(self) -> Needs:
        return Needs(index=True, epoch=True, scores=True, features=self.bottleneck)

    def head(self, feature_dim: int, num_classes: int) -> nn.Module | None:
        if not self.bottleneck:
            return None
        head = BottleneckHead(feature_dim, num_classes, width=self.width, stack=self.stack)
        self._head = (head.to(self.clock.device),)
        return head

    def allocate(self, labels: Labels) -> None:
        self.flipped = self.remembered(0, torch.int8)
        self.mark(self.flipped, labels, positive=OBSERVED, negative=OBSERVED)

    def compute(self, batch: Batch) -> Tensor:
        assert batch.index is not None
        observed = batch.observed
        flipped = self.recall(self.flipped, self.rows(batch.index))
        loss = self.reduce(an(batch.logits, torch.where((flipped == FOUND) & (observed == 0), 1, observed)))
        if not self.bottleneck:
            return loss
        if not self._head:
            raise RuntimeError("mime's classifier is its own: make it with criterion.head(feature_dim, num_classes)")
        assert batch.features is not None
        kl = self._head[0].kl(batch.features.to(self._head[0].encode.weight.dtype))
        kl = kl.mean(-1) if self.variant == "reference" else kl.sum(-1)
        return loss + self.column(self.beta) * kl.mean(-1)

    @torch.no_grad()
    def end_epoch(self, score: Score | None = None) -> None:
        self.check_bound()
        ready = [self.epoch + 1 >= warmup for warmup in self.each("warmup")]
        if not any(ready):
            return
        if score is None:
            raise ValueError("mime needs end_epoch(score): a function that scores the training set, N×L")
        scores = score().detach().to(self.flipped.device)
        if scores.shape != self.flipped.shape:
            raise ValueError(f"score() must give shape {tuple(self.flipped.shape)}, got {tuple(scores.shape)}")
        sure = (scores > self.tau) & (self.flipped == 0)
        if self.stack is not None:
            sure = sure & torch.tensor(ready, device=sure.device)[:, None, None]
        self.flipped.masked_fill_(sure, FOUND)

    def flipped_labels(self) -> Tensor:
        """Which unknown entries were found positive so far: N×L, or M×N×L in a stack."""
        self.check_bound()
        return self.flipped == FOUND
