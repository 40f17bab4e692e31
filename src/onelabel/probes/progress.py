"""The bar that shows how far the probes are and the highest line of the leaderboard so far."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from onelabel.probes.criteria import Held
from onelabel.probes.spec import ProbeSpec
from onelabel.system import make_bar


class Board:
    """A rich bar on a terminal, nothing elsewhere: a block's epoch counts for as many steps as it has probes."""

    def __init__(self, specs: Sequence[ProbeSpec], held: Held | None, wanted: bool) -> None:
        self.specs, self.held = specs, held
        self.text = ""
        cells: dict[Any, int] = {}
        self.cell = np.array([cells.setdefault(spec.cell, len(cells)) for spec in specs])
        self.seeds = np.bincount(self.cell)
        self.values = np.full(len(specs), -np.inf)  # the best of each probe so far
        self.bar: Any = None
        if wanted:
            self.bar = make_bar("{task.fields[probes]}", "bar", "left", "{task.description}")
        if self.bar is not None:
            total = sum(spec.epochs / spec.batch_size for spec in specs)
            probes = "1 probe" if len(specs) == 1 else f"{len(specs):,} probes"
            self.task = self.bar.add_task("", total=total, probes=probes)

    def advance(self, where: NDArray[Any], epoch: int, epochs: int, best: Tensor | None) -> None:
        """One epoch of the probes at `where` is done; `best` are their best values so far, S×P.

        As in the leaderboard a cell counts by the mean over its seeds. What the criterion has beside it, by which a
        cell may come later there, is measured when all have ended.
        """
        if self.bar is None:
            return
        if best is not None and self.held is not None:
            self.values[where] = best.cpu().numpy()
            self.text = self._highest(self.held.criterion.name)
        step = sum(1 / self.specs[int(i)].batch_size for i in where.reshape(-1))
        self.bar.update(self.task, advance=step, description=self.text)

    def _highest(self, criterion: str) -> str:
        """The highest cell in words; nothing while none has a value of every seed."""
        mean = np.bincount(self.cell, self.values) / self.seeds
        top = int(mean.argmax())
        if not np.isfinite(mean[top]):
            return ""
        spec, seeds = self.specs[int(np.argmax(self.cell == top))], int(self.seeds[top])
        of = f", mean of {seeds} seeds" if seeds > 1 else ""
        return f"highest {criterion} so far {mean[top]:.4f}{of}: {spec}"

    def __enter__(self) -> Board:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()
