"""Small helpers every file of this room shares: atomic writing, progress, saying things aloud, optional imports."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

Advance = Callable[[int], None]


def need(module: str, extra: str) -> Any:
    """Import an optional module, or say which extra installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{module} is not installed: pip install 'onelabel[{extra}]'") from error


@contextlib.contextmanager
def atomic_file(path: str | Path) -> Iterator[BinaryIO]:
    """A binary file that appears under `path` only when the block ends without an error."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)  # mkstemp is private to its owner; an output is an ordinary file
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def atomic_write(path: str | Path, content: str | bytes) -> None:
    """Write a whole file atomically."""
    with atomic_file(path) as file:
        file.write(content.encode(errors="backslashreplace") if isinstance(content, str) else content)


def say(message: str) -> None:
    """Print one line to stderr, unless ONELABEL_QUIET is set."""
    if not os.environ.get("ONELABEL_QUIET"):
        print(f"onelabel: {message}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def progress(title: str, total: int | None, *, unit: str = "") -> Iterator[Advance]:
    """A rich progress bar on a terminal; nothing elsewhere. Yields `advance(n)`."""
    rich: Any = None
    if sys.stderr.isatty() and not os.environ.get("ONELABEL_QUIET"):
        with contextlib.suppress(ImportError):
            rich = importlib.import_module("rich.progress")
    if rich is None:
        yield lambda n: None
        return
    console = importlib.import_module("rich.console").Console(stderr=True)
    amount = rich.DownloadColumn() if unit == "bytes" else rich.MofNCompleteColumn()
    speed = [rich.TransferSpeedColumn()] if unit == "bytes" else []
    columns = [rich.TextColumn("{task.description}"), rich.BarColumn(), amount, *speed, rich.TimeRemainingColumn()]
    with rich.Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=total)
        yield lambda n: bar.advance(task, n)


def workers(requested: int | None = None) -> int:
    """How many workers to use: as asked, else the CPUs this process may run on, at most 32."""
    if requested is not None:
        return max(0, requested)
    with contextlib.suppress(AttributeError, OSError):
        return min(32, len(os.sched_getaffinity(0)))
    return min(32, os.cpu_count() or 1)
