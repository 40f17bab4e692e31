"""ROLE's label estimators: what it thinks of every entry, as logits φ with ỹ = σ(φ)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import embedding

from onelabel.methods.layers import Dense, Seeds, generators
from onelabel.methods.optim import RowAdam, adam

if TYPE_CHECKING:
    from onelabel.labels import Labels

KNOWN = math.log(0.995 / 0.005)  #: φ of an observed positive at the start; of a negative, −KNOWN
UNKNOWN = math.log(0.6 / 0.4)  #: φ of an unknown entry starts uniform on ±UNKNOWN
CLAMP = 1e-5  #: estimates given from outside are kept this far from 0 and 1, as in the authors' program
CHUNK = 1 << 16


def offset(observed: Tensor) -> Tensor:
    """What an observed entry adds to φ where no table holds it: ±logit 0.995, 0 where unknown."""
    return KNOWN * observed.float()  # whatever the number type of the labels


class Estimator(nn.Module):
    """Estimates the labels of a batch. `models` is None for a single model."""

    shape: tuple[int, int]

    def __init__(self, models: int | None) -> None:
        super().__init__()
        self.models = models
        self.lead = () if models is None else (models,)
        self.labels: Labels | None = None

    def allocate(self, labels: Labels, seeds: Seeds, device: torch.device) -> None:
        raise NotImplementedError

    def forward(self, index: Tensor | None, observed: Tensor, features: Tensor | None) -> Tensor:
        """φ of a batch: B×L, or M×B×L in a stack."""
        raise NotImplementedError

    def initialise(self, logits: Tensor) -> None:
        """Start from given φ, N×L or M×N×L."""
        raise ValueError("this estimator cannot start from given estimates; load its state_dict instead")

    def optimizers(self, lr: float | Tensor) -> list[torch.optim.Optimizer]:
        return [adam(self.parameters(), lr, models=self.models or 1)]


class Table(Estimator):
    """φ an N×L table, one number per entry; its gradient holds only the batch's rows unless `dense`.

    Split across processes, row i belongs to the process with rank i mod world; a batch's rows are put together by
    summing what each process has of them, and each process updates its own rows only. All processes must see the same
    batch. Row numbers of others point at one spare row, which stays 0.
    """

    def __init__(self, models: int | None, *, dense: bool, dtype: torch.dtype, split: bool) -> None:
        super().__init__(models)
        self.dense, self.dtype, self.split = dense, dtype, split
        self.rank, self.world = 0, 1
        self.register_parameter("weight", None)

    def allocate(self, labels: Labels, seeds: Seeds, device: torch.device) -> None:
        self.shape, self.labels = labels.shape, labels
        if self.split:
            if not dist.is_initialized():
                raise RuntimeError("split=True divides the table among processes: start torch.distributed first")
            self.rank, self.world = dist.get_rank(), dist.get_world_size()
        own = len(range(self.rank, self.shape[0], self.world))
        rows = (self.models or 1) * own + (1 if self.split else 0)
        weight = torch.zeros(rows, self.shape[1], dtype=self.dtype, device=device)
        for model, rng in enumerate(generators(seeds)):
            for at, block in _start(labels, rng):
                mine = block[(self.rank - at) % self.world :: self.world]
                first = model * own + (at - self.rank + self.world - 1) // self.world
                weight[first : first + len(mine)] = mine.to(device, self.dtype)
        self.own = own
        self.weight = nn.Parameter(weight)

    def locate(self, index: Tensor) -> tuple[Tensor, Tensor | None]:
        """Rows of `weight` for a batch, and which of them are held here (None: all)."""
        local = index.long() // self.world if self.split else index.long()
        if self.models is not None:
            local = local + torch.arange(self.models, device=local.device)[:, None] * self.own
        if not self.split:
            return local, None
        held = (index % self.world == self.rank).expand(local.shape)
        return torch.where(held, local, self.weight.shape[0] - 1), held

    def forward(self, index: Tensor | None, observed: Tensor, features: Tensor | None) -> Tensor:
        assert index is not None
        rows, held = self.locate(index)
        phi = embedding(rows, self.weight, sparse=not self.dense)
        phi = phi.to(torch.promote_types(phi.dtype, torch.float32))
        return phi if held is None else _Shared.apply(torch.where(held[..., None], phi, 0.0))

    @torch.no_grad()
    def initialise(self, logits: Tensor) -> None:
        mine = logits.expand(*self.lead, *self.shape)[..., self.rank :: self.world, :]
        flat = mine.reshape(-1, self.shape[1])
        self.weight[: len(flat)] = flat.to(self.weight)

    def optimizers(self, lr: float | Tensor) -> list[torch.optim.Optimizer]:
        if self.dense:
            return super().optimizers(lr)
        return [RowAdam([self.weight], lr=lr, models=self.models or 1, shard=(self.rank, self.world))]


class Factorised(Estimator):
    """φ = ±logit 0.995 where observed + U·Vᵀ + b: N·r + L·r + L numbers instead of N·L.

    The rows of U are updated like a table's, V and b as ordinary parameters. At the start U·Vᵀ lies within ±logit 0.6.
    """

    def __init__(self, models: int | None, *, rank: int) -> None:
        super().__init__(models)
        self.width = int(rank)
        for name in ("rows", "columns", "bias"):
            self.register_parameter(name, None)

    def allocate(self, labels: Labels, seeds: Seeds, device: torch.device) -> None:
        self.shape, self.labels = labels.shape, labels
        n, classes = self.shape
        scale = math.sqrt(UNKNOWN / self.width)
        rows, columns = [], []
        for rng in generators(seeds):
            rows.append((2 * torch.rand(n, self.width, generator=rng) - 1) * scale)
            columns.append((2 * torch.rand(classes, self.width, generator=rng) - 1) * scale)
        self.rows = nn.Parameter(torch.cat(rows).to(device))
        self.columns = nn.Parameter(torch.stack(columns).reshape(*self.lead, classes, self.width).to(device))
        self.bias = nn.Parameter(torch.zeros(*self.lead, 1, classes, device=device))

    def forward(self, index: Tensor | None, observed: Tensor, features: Tensor | None) -> Tensor:
        assert index is not None
        at = index.long()
        if self.models is not None:
            at = at + torch.arange(self.models, device=at.device)[:, None] * self.shape[0]
        return offset(observed) + embedding(at, self.rows, sparse=True) @ self.columns.mT + self.bias

    @torch.no_grad()
    def initialise(self, logits: Tensor) -> None:
        assert self.labels is not None
        seen = self.labels.rows(slice(None)).to(logits.device)
        rest = torch.where(seen != 0, 0.0, logits.expand(*self.lead, *self.shape))
        bias = rest.mean(-2, keepdim=True)
        u, s, vt = torch.linalg.svd(rest - bias, full_matrices=False)
        r = min(self.width, s.shape[-1])
        root = s[..., :r].sqrt()
        self.rows.zero_()[:, :r] = (u[..., :r] * root[..., None, :]).reshape(-1, r).to(self.rows)
        self.columns.zero_()[..., :r] = (vt[..., :r, :].mT * root[..., None, :]).to(self.columns)
        self.bias.copy_(bias)

    def optimizers(self, lr: float | Tensor) -> list[torch.optim.Optimizer]:
        models = self.models or 1
        return [RowAdam([self.rows], lr=lr, models=models), adam([self.columns, self.bias], lr, models=models)]


class Network(Estimator):
    """φ = ±logit 0.995 where observed + a network of one hidden layer on the features: nothing grows with N."""

    def __init__(self, models: int | None, *, feature_dim: int, hidden: int) -> None:
        super().__init__(models)
        self.feature_dim, self.hidden = int(feature_dim), int(hidden)
        self.inner: Dense | None = None
        self.outer: Dense | None = None

    def allocate(self, labels: Labels, seeds: Seeds, device: torch.device) -> None:
        self.shape, self.labels = labels.shape, labels
        rngs = generators(seeds)
        self.inner = Dense(self.models, self.feature_dim, self.hidden, rngs).to(device)
        self.outer = Dense(self.models, self.hidden, self.shape[1], rngs).to(device)

    def forward(self, index: Tensor | None, observed: Tensor, features: Tensor | None) -> Tensor:
        assert self.inner is not None
        assert self.outer is not None
        assert features is not None
        if features.shape[-1] != self.feature_dim:
            raise ValueError(f"features must have feature_dim={self.feature_dim} columns, got {features.shape[-1]}")
        # The estimator learns from what the features are, the classifier's backbone from the classifier's half alone.
        hidden = torch.relu(self.inner(features.detach().to(self.inner.weight.dtype)))
        return offset(observed) + self.outer(hidden)


class _Shared(torch.autograd.Function):
    """The sum over processes; each keeps the gradient of the whole, which is the same everywhere."""

    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        whole = own.clone()
        dist.all_reduce(whole)
        return whole

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> Tensor:
        return grad[0]


def _start(labels: Labels, rng: torch.Generator | None) -> Iterator[tuple[int, Tensor]]:
    """The first φ in blocks of rows: (first row, block). Every process draws all of it, so all draw the same."""
    for at in range(0, labels.num_examples, CHUNK):
        seen = labels.rows(slice(at, min(at + CHUNK, labels.num_examples)))
        block = (2 * torch.rand(seen.shape, generator=rng) - 1) * UNKNOWN
        yield at, torch.where(seen != 0, offset(seen), block)
