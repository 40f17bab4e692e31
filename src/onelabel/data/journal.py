"""A memory-mapped .npy that is filled in chunks and survives interruption.

While it is being filled, `NAME.partial.npy` holds the data and `NAME.partial.jsonl` the journal: a first line with the
key and shape, then a line per finished chunk. A chunk's line is written after its data has reached the disk, so a
line never promises data that is not there. When all chunks are done, `NAME.json` is written and the array is moved to
`NAME.npy`, which therefore is always whole.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from onelabel.system import atomic_write, naming, reading, say

from .report import Problem


class ChunkedArray:
    """Open (or go on with) the array `folder/name.npy`; see the module for the files.

    Args:
        key: what the contents depend on, JSON; a partial file with another key is started anew.
        chunk: rows per chunk.
    """

    def __init__(
        self,
        folder: str | Path,
        name: str,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        key: Mapping[str, Any],
        chunk: int,
    ) -> None:
        self.folder, self.name, self.shape, self.dtype = Path(folder), name, tuple(shape), np.dtype(dtype)
        self.chunk = chunk
        self.header = {"key": dict(key), "shape": list(self.shape), "dtype": self.dtype.str, "chunk": chunk}
        self.final, self.side = self.folder / f"{name}.npy", self.folder / f"{name}.json"
        self.partial = self.folder / f"{name}.partial.npy"
        self.journal = self.folder / f"{name}.partial.jsonl"

    def finished(self) -> tuple[NDArray[Any], list[Any]] | None:
        """The whole array, read-only, and the notes of its chunks; None while it is not whole."""
        if not (self.final.exists() and self.side.exists()):
            return None
        try:
            saved = json.loads(self.side.read_text(encoding="utf-8"))
            if {name: saved.get(name) for name in self.header} != self.header:
                return None
            array = np.load(self.final, mmap_mode="r", allow_pickle=False)
            notes = list(saved["notes"])
            with contextlib.suppress(OSError):  # somebody else's, or of a medium that is only read
                os.utime(self.side)  # `kept.clear` goes by when it was last used
            return (array, notes) if array.shape == self.shape and array.dtype == self.dtype else None
        except Exception:  # damaged: it is made anew
            return None

    @contextlib.contextmanager
    def filling(self) -> Iterator[Filling]:
        """Hold the files for writing; another process waits here until this one ends."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder / f"{self.name}.lock", waiting_for=self.final.name):
            yield Filling(self)

    def complete(self, notes: list[Any]) -> None:
        """Give the array its final name."""
        atomic_write(self.side, json.dumps({**self.header, "notes": notes}))
        os.replace(self.partial, self.final)
        self.journal.unlink(missing_ok=True)


class Filling:
    """The chunks still to do, the array to write them into, and the journal."""

    def __init__(self, owner: ChunkedArray) -> None:
        self.owner = owner
        self.notes: dict[int, Any] = self._read_journal()
        if not self.notes:
            owner.partial.unlink(missing_ok=True)
            with _full_disk(owner.partial, math.prod(owner.shape) * owner.dtype.itemsize):
                np.lib.format.open_memmap(owner.partial, mode="w+", dtype=owner.dtype, shape=owner.shape).flush()
                _reserve(owner.partial)
                atomic_write(owner.journal, json.dumps(owner.header) + "\n")
        self.array: NDArray[Any] = np.load(owner.partial, mmap_mode="r+", allow_pickle=False)

    def _read_journal(self) -> dict[int, Any]:
        owner = self.owner
        try:
            lines = owner.journal.read_text(encoding="utf-8").splitlines()
            if not lines or json.loads(lines[0]) != owner.header:
                return {}
            array = np.load(owner.partial, mmap_mode="r", allow_pickle=False)
            if array.shape != owner.shape or array.dtype != owner.dtype:
                return {}
        except Exception:  # damaged: begun anew
            return {}
        done: dict[int, Any] = {}
        for line in lines[1:]:
            try:
                entry = json.loads(line)
                done[int(entry["chunk"])] = entry["note"]
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                break  # the line that was being written when the power went
        # Written anew, so that half a line is never followed by a whole one.
        entries = [json.dumps({"chunk": chunk, "note": note}) for chunk, note in done.items()]
        atomic_write(owner.journal, "\n".join([json.dumps(owner.header), *entries]) + "\n")
        return done

    @property
    def todo(self) -> list[tuple[int, slice]]:
        """Chunk numbers and their rows, in order, that are not done yet."""
        rows, step = self.owner.shape[0], self.owner.chunk
        chunks = range((rows + step - 1) // step)
        return [(i, slice(i * step, min(rows, (i + 1) * step))) for i in chunks if i not in self.notes]

    def done(self, chunk: int, note: Any = None) -> None:
        """A chunk's rows have been written to `array`: make them durable and record it."""
        if isinstance(self.array, np.memmap):
            self.array.flush()
        with naming(self.owner.journal), open(self.owner.journal, "a") as file:
            file.write(json.dumps({"chunk": chunk, "note": note}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.notes[chunk] = note

    def finish(self) -> tuple[NDArray[Any], list[Any]]:
        """Close the array, give it its name, and open it for reading."""
        notes = [self.notes[chunk] for chunk in sorted(self.notes)]
        del self.array
        self.owner.complete(notes)
        result = self.owner.finished()
        if result is None:
            raise OSError(f"{self.owner.final}: changed while it was being written")
        return result


def failed_rows(notes: Iterable[Any], path: Path) -> dict[int, Problem]:
    """Rows that could not be read, and why, from notes of [row, kind, name, detail] lists."""
    with reading(path, "a cache with notes of failed rows", remedy="remove it"):
        return {int(row): Problem(str(kind), str(name), str(why)) for note in notes for row, kind, name, why in note}


def _reserve(path: Path) -> None:
    """Take the whole file from the disk now: where a mapping meets a full one the process ends (SIGBUS)."""
    if hasattr(os, "posix_fallocate"):
        with open(path, "r+b") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, os.path.getsize(path))
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # a file system that cannot reserve
                    raise


@contextlib.contextmanager
def _full_disk(path: Path, size: int) -> Iterator[None]:
    """A file for which there is no room goes again, and one line says what helps."""
    try:
        yield
    except OSError as error:
        path.unlink(missing_ok=True)
        told = f"{error.strerror}; {size / 2**20:,.1f} MiB are needed there, or set ONELABEL_CACHE to another folder"
        raise OSError(error.errno, told, str(path)) from error


@contextlib.contextmanager
def locked(path: Path, *, waiting_for: str = "") -> Iterator[bool]:
    """Hold a lock file. Where another process has it: wait, and say `waiting_for` what; without one, yield False."""
    try:
        import fcntl
    except ImportError:  # no such locks on Windows: two processes then do the work twice
        yield True
        return
    while True:
        with open(path, "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if not waiting_for:
                    yield False
                    return
                say(f"another process is writing {waiting_for}; waiting for it")
                fcntl.flock(file, fcntl.LOCK_EX)
            if _is(file, path):  # else the cache was cleared meanwhile, and others lock another file
                yield True
                return


def _is(file: IO[str], path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    return False
