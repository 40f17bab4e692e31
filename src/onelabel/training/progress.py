"""The bar of a training run: img/s, time left, loss and the latest mAP."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from onelabel.system import make_bar


class Bar(contextlib.AbstractContextManager["Bar"]):
    """A rich bar on a terminal, nothing elsewhere. `speed` is the mean since the epoch began, evaluation left out."""

    def __init__(self, total: int, *, show: bool = True) -> None:
        self.total, self.metric = total, ""
        self.bar: Any = None
        self.task: Any = None
        self.began, self.rows = time.perf_counter(), 0
        if show:
            self.bar = make_bar("{task.description}", "bar", "left", "{task.fields[note]}", transient=False)

    def __enter__(self) -> Bar:
        if self.bar is not None:
            self.bar.start()
            self.task = self.bar.add_task("", total=self.total, note="")
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def begin(self) -> None:
        """An epoch begins now."""
        self.began, self.rows = time.perf_counter(), 0

    @property
    def speed(self) -> float:
        return self.rows / max(time.perf_counter() - self.began, 1e-9)

    def show(self, title: str, done: int, loss: float | None = None) -> None:
        if self.bar is not None and self.task is not None:
            speed = f"{self.speed:,.0f} img/s" if self.rows else ""
            note = speed + ("" if loss is None else f"  loss {loss:.4f}") + self.metric
            self.bar.update(self.task, description=title, completed=done, note=note)
