"""The bar that shows how far the probes are and the best so far."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from onelabel.probes.criteria import Held
from onelabel.probes.spec import ProbeSpec
from onelabel.system import make_bar


class Board:
    """A rich bar on a terminal, nothing elsewhere: a block's epoch counts for as many steps as it has probes."""

    def __init__(self, specs: Sequence[ProbeSpec], held: Held | None, wanted: bool) -> None:
        self.specs, self.held = specs, held
        self.best, self.text = float("-inf"), ""
        self.bar: Any = None
        if wanted:
            self.bar = make_bar("{task.fields[probes]} probes", "bar", "left", "{task.description}")
        if self.bar is not None:
            total = sum(spec.epochs / spec.batch_size for spec in specs)
            self.task = self.bar.add_task("", total=total, probes=len(specs))

    def advance(self, where: NDArray[Any], epoch: int, epochs: int, best: Tensor | None) -> None:
        """One epoch of the probes at `where` is done; `best` are their best values so far, S×P."""
        if self.bar is None:
            return
        if best is not None and self.held is not None and float(best.max()) > self.best:
            self.best = float(best.max())
            which = int(where.reshape(-1)[int(best.argmax())])
            self.text = f"best {self.held.criterion.name} {self.best:.4f}: {self.specs[which]}"
        step = sum(1 / self.specs[int(i)].batch_size for i in where.reshape(-1))
        self.bar.update(self.task, advance=step, description=self.text)

    def __enter__(self) -> Board:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()
