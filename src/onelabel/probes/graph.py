"""Running an epoch: plain steps, or steps replayed as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable

import torch

from onelabel.probes.block import BlockTrainer

#: Steps run one by one before a capture: they are real steps and serve as its warm-up, so nothing is undone.
EAGER = 3


def epoch_runner(
    trainer: BlockTrainer, size: int, *, drop_last: bool, graph: bool | None, streams: int
) -> Callable[[int], None]:
    """A function that trains one epoch (0-based)."""
    rows = trainer.rows
    size = min(size, rows)
    full, rest = divmod(rows, size)
    rest = 0 if drop_last else rest
    captured = graph if graph is not None else trainer.device.type == "cuda"
    if captured and trainer.device.type == "cuda" and full > 2 * EAGER:
        return _Captured(trainer, size, full, rest, streams)

    def plain(epoch: int) -> None:
        order = trainer.order(epoch)
        for i in range(full + bool(rest)):
            tick = epoch * (full + 1) + i
            trainer.step(order[:, i * size : min((i + 1) * size, full * size + rest)].contiguous(), tick=tick)

    return plain


class _Captured:
    """One step recorded once and replayed: the rows come from a buffer that the graph walks by a counter of its own.

    A capture records and does not run, and the eager steps before it are real ones, so there is no state to restore.
    Where a method has a schedule each epoch is captured anew: a setting that a method keeps as a Python
    number would otherwise stay what it was.
    """

    def __init__(self, trainer: BlockTrainer, size: int, full: int, rest: int, streams: int) -> None:
        self.trainer, self.size, self.full, self.rest = trainer, size, full, rest
        seeds = trainer.shape[0]
        self.rows = torch.zeros(full, seeds, size, dtype=torch.int64, device=trainer.device)
        self.at = torch.zeros(1, dtype=torch.int64, device=trainer.device)
        self.side = torch.cuda.Stream(trainer.device)
        self.streams = [torch.cuda.Stream(trainer.device) for _ in range(streams)] if streams > 1 else None
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, epoch: int) -> None:
        trainer, size = self.trainer, self.size
        order = trainer.order(epoch)
        ordered = order[:, : self.full * size].view(trainer.shape[0], self.full, size)
        self.rows.copy_(ordered.transpose(0, 1))
        self.at.zero_()
        done = 0
        if self.graph is None or trainer.changes:
            self.side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.side):
                for _ in range(EAGER):
                    self._step(None)
            torch.cuda.current_stream().wait_stream(self.side)
            done = EAGER
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=self.side):
                self._step(self.streams)
        for _ in range(self.full - done):
            self.graph.replay()
        if self.rest:
            trainer.step(order[:, self.full * size : self.full * size + self.rest].contiguous())

    def _step(self, streams: list[torch.cuda.Stream] | None) -> None:
        index = self.rows.index_select(0, self.at)[0]
        self.at.add_(1)
        self.trainer.step(index, streams=streams)
