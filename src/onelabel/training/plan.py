"""Which rows an epoch visits, in which order: decided by seed, phase and epoch, whatever the number of processes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

PHASES = ("linear", "finetune", "student")


@dataclass(frozen=True)
class Plan:
    """An epoch. `order` and `flips` have one entry per row visited; `updates` the batch sizes of each update."""

    order: Tensor
    flips: Tensor
    updates: tuple[tuple[int, ...], ...]

    @classmethod
    def make(
        cls, rows: int, *, batch_size: int, accumulate: int, drop_last: bool, seed: int, phase: str, epoch: int
    ) -> Plan:
        """Draw the order and the flips, and cut the rows into updates of `accumulate` batches."""
        state = np.random.SeedSequence([seed, PHASES.index(phase), epoch]).generate_state(1, np.uint64)
        generator = torch.Generator().manual_seed(int(state[0] >> 1))
        order = torch.randperm(rows, generator=generator)
        flips = torch.rand(rows, generator=generator) < 0.5
        sizes = [batch_size] * (rows // batch_size)
        if rows % batch_size and (not drop_last or not sizes):
            sizes.append(rows % batch_size)
        updates = tuple(tuple(sizes[i : i + accumulate]) for i in range(0, len(sizes), accumulate))
        return cls(order, flips, updates)

    def own(self, first_update: int, rank: int, world: int) -> Tensor:
        """The rows one process loads from `first_update` on, batch after batch."""
        parts, start = [], 0
        for number, sizes in enumerate(self.updates):
            for size in sizes:
                share = -(-size // world)
                places = start + torch.arange(rank * share, (rank + 1) * share).clamp(max=size - 1)
                if number >= first_update:
                    parts.append(self.order[places])
                start += size
        return torch.cat(parts) if parts else self.order[:0]

    @property
    def done(self) -> list[int]:
        """How many rows have been visited before each update, and after the last."""
        counts = [0]
        for sizes in self.updates:
            counts.append(counts[-1] + sum(sizes))
        return counts
