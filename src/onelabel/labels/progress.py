"""A progress bar for the loops that cannot be vectorised."""

from __future__ import annotations

import sys
from collections.abc import Iterator

STEP = 4096


def track(total: int, title: str) -> Iterator[int]:
    """``range(total)``, with a bar on a terminal where rich is installed."""
    if total > STEP and sys.stderr.isatty():
        try:
            from rich.console import Console
            from rich.progress import Progress
        except ImportError:
            yield from range(total)
            return
        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(title, total=total)
            for start in range(0, total, STEP):
                stop = min(start + STEP, total)
                yield from range(start, stop)
                bar.update(task, completed=stop)
        return
    yield from range(total)
