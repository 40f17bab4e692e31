"""A linear layer of one model or of a stack, drawn model by model so that a stack starts like its members alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

Seeds = Sequence[int | None]


def generators(seeds: Seeds) -> list[torch.Generator | None]:
    """One generator a model; None is the global one."""
    return [None if seed is None else torch.Generator().manual_seed(int(seed)) for seed in seeds]


class Dense(nn.Module):
    """x·W + b; W is D×H, or M×D×H in a stack, where x is B×D for all models or M×B×D. Starts like ``nn.Linear``."""

    def __init__(
        self, models: int | None, inputs: int, outputs: int, rngs: Sequence[torch.Generator | None] | None = None
    ) -> None:
        super().__init__()
        lead = () if models is None else (models,)
        draws = [_uniform(inputs, outputs, rng) for rng in (rngs or [None] * (models or 1))]
        self.weight = nn.Parameter(torch.stack([w for w, _ in draws]).reshape(*lead, inputs, outputs))
        self.bias = nn.Parameter(torch.stack([b for _, b in draws]).reshape(*lead, 1, outputs))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias

    def extra_repr(self) -> str:
        return "×".join(str(n) for n in self.weight.shape)


def _uniform(inputs: int, outputs: int, rng: torch.Generator | None) -> tuple[Tensor, Tensor]:
    bound = 1 / math.sqrt(inputs)
    weight = torch.empty(inputs, outputs).uniform_(-bound, bound, generator=rng)
    return weight, torch.empty(1, outputs).uniform_(-bound, bound, generator=rng)
