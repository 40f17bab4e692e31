"""What every room asks of the machine: files that are whole or absent, a bar for who waits, a word aloud, extras.

Imports nothing heavy and nothing of onelabel.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

Advance = Callable[[int], None]
Listener = Callable[[float, str], None]
_TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}\.tmp(\..*)?")


def need(module: str, extra: str) -> Any:
    """Import an optional module, or say which extra installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{module} is not installed: pip install 'onelabel[{extra}]'") from error


# -- files -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary name beside `path`, with its suffix, that becomes `path` when the block ends without an error."""
    target = Path(path)
    temporary, held = _temporary(target)
    try:
        with naming(target):
            yield temporary
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)  # mkstemp is private to its owner; an output is an ordinary file
            os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    finally:
        if held is not None:
            os.close(held)


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """A failure that names no file, as a full disk's, names this one."""
    try:
        yield
    except OSError as error:
        if error.errno and error.filename is None:
            error.filename = str(path)
        raise


def _temporary(target: Path) -> tuple[Path, int | None]:
    """A new file beside `target`, and a lock on it that ends with this process, however that ends."""
    while True:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=f".tmp{target.suffix}", dir=target.parent)
        try:
            import fcntl
        except ImportError:  # not POSIX: an open file could not be moved
            os.close(handle)
            return Path(name), None
        with contextlib.suppress(OSError):  # a file system without locks: there nothing is cleared either
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.exists(name):
            return Path(name), handle
        os.close(handle)  # cleared between the two: once more


def clear_stale(*folders: str | os.PathLike[str]) -> None:
    """Remove what killed processes left half-written: temporary files of `atomic_path` that no process holds."""
    try:
        import fcntl
    except ImportError:
        return
    found = [entry for folder in folders if os.path.isdir(folder) for entry in os.scandir(folder)]
    for entry in found:
        if _TEMPORARY.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
            with contextlib.suppress(OSError), open(entry.path, "r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(entry.path)


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file, its folder made where missing, that appears under `path` only when the block ends well."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        yield file


def atomic_write(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a whole file atomically."""
    with atomic_file(path) as file:
        file.write(content.encode(errors="backslashreplace") if isinstance(content, str) else content)


def refuse_existing(*paths: str | os.PathLike[str], remedy: str = "give another path") -> None:
    """What is there already is somebody's work: an error that names it; an empty folder is nothing."""
    for path in map(Path, paths):
        if path.is_symlink() or (path.exists() and not (path.is_dir() and not any(path.iterdir()))):
            raise FileExistsError(f"{path} exists; nothing is overwritten: {remedy}")


def one_line(error: BaseException, *, most: int = 300) -> str:
    """What an error says, on one line of bounded length; its name where it says nothing."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= most else f"{text[: most - 1]}…"


@contextlib.contextmanager
def reading(
    path: str | os.PathLike[str], what: str, *, remedy: str = "", kind: type[Exception] = ValueError
) -> Iterator[None]:
    """Whatever a parser raises on a damaged file becomes one line of `kind` that names the file.

    Errors of the system (no such file, no permission) and missing packages pass, and so does a line of ours.
    """
    try:
        yield
    except ImportError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        ours = kind is not ValueError or str(error).startswith(str(path))
        if isinstance(error, kind) and ours and "\n" not in str(error):
            raise
        raise kind(f"{path}: not {what} ({one_line(error)}){'; ' * bool(remedy)}{remedy}") from error


def read_json(path: str | os.PathLike[str], *, remedy: str = "") -> Any:
    """The value in a JSON file."""
    with reading(path, "JSON", remedy=remedy):
        return json.loads(Path(path).read_text(encoding="utf-8"))


def check_schema(found: Any, known: int, where: object) -> None:
    """Refuse what a newer (or no) version of this program wrote."""
    if type(found) is int and found > known:
        raise ValueError(f"{where}: schema_version {found}, this onelabel reads up to {known}; upgrade onelabel")
    if type(found) is not int or found < 1:
        raise ValueError(f"{where}: schema_version {found!r:.40}, expected a number from 1 to {known}")


# -- people ------------------------------------------------------------------------------------------------------------


_listeners: list[Listener] = []
#: Said while nobody listened: what is found of the data, and what auto chose, is said before a run folder is open.
_unheard: deque[tuple[float, str]] = deque(maxlen=100)


def say(message: str) -> None:
    """One line to stderr from the first process, unless ONELABEL_QUIET is set (to "lines": bars are shown still)."""
    if os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) != "0":
        return
    if not os.environ.get("ONELABEL_QUIET"):
        print(f"onelabel: {message}", file=sys.stderr, flush=True)
    if _listeners:
        _listeners[-1](time.time(), message)
    else:
        _unheard.append((time.time(), message))


@contextlib.contextmanager
def overheard(listener: Listener) -> Iterator[None]:
    """Inside, `listener(time, message)` has each line that is said, quietly too, and first those that nobody heard."""
    while _unheard:
        listener(*_unheard.popleft())
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def make_bar(*columns: str, transient: bool = True) -> Any:
    """A rich progress bar on stderr; None where nobody watches: no terminal, no rich, or ONELABEL_QUIET.

    A column is a text with fields of the task, or the name of one of rich's: bar, left, count, bytes, speed.
    """
    if not sys.stderr.isatty() or (os.environ.get("ONELABEL_QUIET") or "lines") != "lines":
        return None
    try:
        from rich import progress as rich
        from rich.console import Console
        from rich.table import Column
    except ImportError:
        return None
    console = Console(stderr=True)
    known: dict[str, Any] = {
        "bar": lambda: rich.BarColumn(bar_width=40 if console.width >= 120 else 16),
        "left": rich.TimeRemainingColumn,
        "count": rich.MofNCompleteColumn,
        "bytes": rich.DownloadColumn,
        "speed": rich.TransferSpeedColumn,
    }
    made = [known[column]() if column in known else rich.TextColumn(column) for column in columns]
    trailing = columns[-1] not in known  # a narrow terminal cuts this text short, and nothing else
    if trailing:
        made[-1] = rich.TextColumn(columns[-1], table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1))
    return rich.Progress(*made, console=console, transient=transient, expand=trailing)


@contextlib.contextmanager
def progress(title: str, total: int | None, *, unit: str = "", wanted: bool = True) -> Iterator[Advance]:
    """A bar for a piece of work of known size; yields `advance(n)`."""
    amount = ("bytes", "speed") if unit == "bytes" else ("count",)
    bar = make_bar("{task.description}", "bar", *amount, "left") if wanted else None
    if bar is None:
        yield lambda n: None
        return
    with bar:
        task = bar.add_task(title, total=total)
        yield lambda n: bar.advance(task, n)


# -- the processor -----------------------------------------------------------------------------------------------------


def workers(requested: int | None = None) -> int:
    """How many workers to use: as asked, else the CPUs this process may run on, at most 32."""
    if requested is not None:
        return max(0, requested)
    with contextlib.suppress(AttributeError, OSError):
        return min(32, len(os.sched_getaffinity(0)))
    return min(32, os.cpu_count() or 1)
