"""SMILE (Xu et al. 2022): a latent label distribution inferred from features and those of their neighbours."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Beta
from torch.nn.functional import softplus

from onelabel.contract import Batch, Hyper, Method, Needs, register
from onelabel.losses.baselines import an
from onelabel.losses.curves import nll, soft
from onelabel.methods.layers import Dense, generators
from onelabel.methods.memory import Remembering

if TYPE_CHECKING:
    from onelabel.labels import Labels

PAPER = "Xu et al., One Positive Label is Sufficient: Single-Positive Multi-Label Learning with Label Enhancement"
FLOOR = 1e-2  #: the least α and β of a posterior: below, its samples are 0 and 1 to float32
EDGE = 1e-6
BLOCK = 1 << 24  #: distances held at once


def beta_kl(a: Tensor, b: Tensor, prior: tuple[float, float] = (1.0, 1.0)) -> Tensor:
    """KL(Beta(a, b) ‖ Beta(prior)), entry by entry."""
    a0, b0 = prior
    log_norm = torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)
    log_prior = math.lgamma(a0) + math.lgamma(b0) - math.lgamma(a0 + b0)
    slopes = (a - a0) * torch.digamma(a) + (b - b0) * torch.digamma(b) - (a + b - a0 - b0) * torch.digamma(a + b)
    return log_prior - log_norm + slopes


def nearest(features: Tensor, k: int) -> Tensor:
    """The k nearest other rows of each row, Euclidean: N×k. Distances are held for a block of rows at a time."""
    n = features.shape[0]
    if not 0 < k < n:
        raise ValueError(f"neighbours must lie in [1, {n - 1}], one less than the examples, got {k}")
    found = []
    for block in torch.arange(n, device=features.device).split(max(BLOCK // n, 1)):
        apart = torch.cdist(features[block], features)
        apart[torch.arange(len(block), device=apart.device), block] = torch.inf
        found.append(apart.topk(k, largest=False).indices)
    return torch.cat(found)


@register(
    "smile",
    title="Label enhancement",
    paper=PAPER,
    year=2022,
    formula="BCE(p, m·sg(d̄) + (1−m)·z̃) + an(d̄) + γ·(‖x̂−x‖² + an(d) + ‖ddᵀ−A‖²) + δ·KL(q ‖ Beta(1,1)), "
    "d ~ q = Beta(a, b) of the features and their neighbours'",
)
class SMILE(Remembering):
    """SMILE: every entry has a latent soft label d with a Beta posterior; the classifier learns from its mean d̄.

    An encoder of two graph convolutions, each averaging an example with its `neighbours` nearest in feature space,
    gives the posterior's a and b from the features. It is trained to explain the observed labels (assume negative),
    the features and the graph A from a sample of d, and held to the uniform prior. The classifier's targets are
    m·d̄ + (1−m)·z̃ with z̃ = 1, `prior`, 0 on positive, unknown, negative entries; unknown entries weigh `rate`,
    1/(L−1) by default. For frozen features only: after `bind(labels)` call ``bind_features(features)`` with the
    training set's N×D, as after loading a state. In eval mode d is its mean instead of a sample.

    What is ours: the losses and weights follow the authors' program (one of its two versions of the encoder takes
    a = d̄, b = 1−d̄; here, as in the paper and its other version, a and b are outputs of their own, and the KL is the
    whole of it), a convolution averages over neighbours and itself, and m, `prior` are the middle of what it searches.
    """

    hyper: ClassVar = {
        "mix": Hyper("m, the posterior's share of the targets", 0, 1, (0.01, 0.1, 0.5, 0.9)),
        "prior": Hyper("target of unknown entries beside the posterior", 0, 1, (0.001, 0.01, 0.05, 0.1)),
        "rate": Hyper("weight of unknown entries, None for 1/(L−1)", 0, 10, (0.1, 0.3, 0.5, 0.7)),
        "gamma": Hyper("weight of the reconstructions", 0, 100, (0.001,)),
        "delta": Hyper("weight of the KL", 0, 100, (0.1, 1.0)),
    }

    def __init__(
        self,
        *,
        feature_dim: int | None = None,
        mix: Any = 0.5,
        prior: Any = 0.05,
        rate: Any = None,
        gamma: Any = 0.001,
        delta: Any = 1.0,
        hidden: int = 256,
        neighbours: int = 3,
        seed: Any = None,
        stack: int | None = None,
    ) -> None:
        super().__init__(mix=mix, prior=prior, rate=rate, gamma=gamma, delta=delta, seed=seed, stack=stack)
        self.feature_dim, self.hidden, self.neighbours = feature_dim, int(hidden), int(neighbours)
        self.register_buffer("smoothed", None, persistent=False)
        self.register_buffer("graph", None, persistent=False)

    @property
    def needs(self) -> Needs:
        return Needs(index=True, features=True)

    def allocate(self, labels: Labels) -> None:
        if self.feature_dim is None:
            raise ValueError("smile needs feature_dim=, the width of the features it will be given")
        seed = self._hyper["seed"]
        rngs = generators([None] * (self.stack or 1) if seed is None else [int(s) for s in self.each("seed")])
        wide, hidden, classes = int(self.feature_dim), self.hidden, self.size[1]
        sizes = {
            "first": (wide, hidden),
            "second": (hidden, hidden),
            "posterior": (hidden, 2 * classes),
            "context": (wide + classes, hidden),
            "decoder": (classes + hidden, hidden),
            "features_out": (hidden, wide),
        }
        for name, (inputs, outputs) in sizes.items():
            self.add_module(name, Dense(self.stack, inputs, outputs, rngs).to(self.clock.device))

    def bind_features(self, features: Tensor) -> Method:
        n = self.size[0]
        if tuple(features.shape) != (n, self.feature_dim):
            raise ValueError(f"features must have shape {(n, self.feature_dim)}, got {tuple(features.shape)}")
        features = features.detach().to(self.clock.device, torch.float32)
        itself = torch.arange(n, device=features.device)[:, None]
        self.graph = torch.cat([itself, nearest(features, self.neighbours)], 1)
        # The first convolution's average is always the same.
        self.smoothed = torch.stack([features[column] for column in self.graph.T]).mean(0)
        return self

    def encode(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """a and b of the posterior: …×B×L. Only the batch's neighbours and theirs are looked at."""
        near = self.smoothed[self.graph[index.long()]].to(self.first.weight.dtype)  # …×B×(k+1)×D
        hidden = torch.relu(self.first(near.flatten(-3, -2))).unflatten(-2, near.shape[-3:-1]).mean(-2)
        a, b = softplus(self.posterior(torch.relu(self.second(hidden)))).add(FLOOR).chunk(2, -1)
        return a, b

    def compute(self, batch: Batch) -> Tensor:
        logits, observed, index, x = batch.logits, batch.observed, batch.index, batch.features
        if self.graph is None:
            raise RuntimeError("smile looks at neighbours: call bind_features(features) of the training set, N×D")
        assert index is not None
        assert x is not None
        a, b = self.encode(index)
        mean = a / (a + b)
        x = x.detach().to(mean.dtype).expand(*mean.shape[:-1], x.shape[-1])
        d = Beta(a, b, validate_args=False).rsample().clamp(EDGE, 1 - EDGE) if self.training else mean
        context = torch.relu(self.context(torch.cat([x, d], -1)))
        rebuilt = self.features_out(torch.relu(self.decoder(torch.cat([d, context], -1))))
        linked = (self.graph[index.long()][..., :, None, 1:] == index[..., None, :, None]).any(-1)
        rebuild = ((rebuilt - x) ** 2).mean((-2, -1)) + self.reduce(an(torch.logit(d), observed))
        rebuild = rebuild + ((d @ d.mT - linked.to(d.dtype)) ** 2).mean((-2, -1))
        explain = self.reduce(an(a.log() - b.log(), observed)) + self.column(self.gamma) * rebuild
        return self._learn(logits, observed, mean) + explain + self.column(self.delta) * self.reduce(beta_kl(a, b))

    def _learn(self, logits: Tensor, observed: Tensor, mean: Tensor) -> Tensor:
        """The classifier's loss."""
        known = torch.where(observed > 0, 1.0, torch.where(observed < 0, 0.0, self.prior))
        target = self.mix * mean.detach() + (1 - self.mix) * known
        rate = 1 / max(logits.shape[-1] - 1, 1) if self.rate is None else self.rate
        loss = soft(target.to(logits.dtype), nll(logits), nll(-logits))
        return self.reduce(torch.where(observed == 0, rate * loss, loss))

    @torch.no_grad()
    def estimated_labels(self, index: Tensor | None = None) -> Tensor:
        """The posterior's mean for some examples (all by default): n×L, or M×n×L in a stack."""
        n = self.size[0]
        if self.graph is None:
            raise RuntimeError("smile looks at neighbours: call bind_features(features) of the training set, N×D")
        at = torch.arange(n, device=self.clock.device) if index is None else index.to(self.clock.device)
        parts = [self.encode(block) for block in at.split(4096, -1)]
        return torch.cat([a / (a + b) for a, b in parts], -2)
