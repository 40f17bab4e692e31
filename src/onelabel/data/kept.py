"""What the cache of features and decoded pictures holds, and making room in it."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import cache, pictures
from .journal import locked

#: An array's name, and what follows it in the names of its files (see `journal`).
_FILE = re.compile(r"((?:features|squares)-.+?)((?:\.partial)?\.(?:npy|json|jsonl))")
DAY = 86400.0
#: What the arrays that are read today say of themselves.
VERSIONS = {"features": cache.CACHE_VERSION, "squares": pictures.CACHE_VERSION}


@dataclass(frozen=True)
class Kept:
    """An array of the cache with all its files.

    Attributes:
        what: of which backbone or size, in words. rows: of the array. state: "whole", "begun", or "old", of a version
            of this program whose arrays nobody reads any more, or damaged.
        size: bytes on disk. used: when it was last read or written, seconds since 1970.
    """

    name: str
    folder: Path
    what: str
    rows: int
    state: str
    size: int
    used: float

    def files(self) -> list[Path]:
        return [path for path, name in _files(self.folder) if name == self.name]


def kept(folder: str | Path) -> list[Kept]:
    """What a cache folder holds, last used first."""
    by_name: dict[str, list[Path]] = {}
    for path, name in _files(Path(folder)):
        by_name.setdefault(name, []).append(path)
    return sorted((_look(name, files) for name, files in by_name.items()), key=lambda each: -each.used)


def clear(arrays: Iterable[Kept], *, days: float = 0.0) -> tuple[list[Kept], list[Kept]]:
    """Remove arrays that nobody used for so many days, and old ones at any age: what went, and what is being written.

    A process that reads one has it mapped, and keeps it to its end (not on Windows, where it cannot be removed).
    """
    gone: list[Kept] = []
    busy: list[Kept] = []
    for each in arrays:
        if each.state != "old" and time.time() - each.used < days * DAY:
            continue
        lock = each.folder / f"{each.name}.lock"
        with locked(lock) as free:
            if free:
                for path in [*each.files(), lock]:  # the lock last: who waits for it begins anew
                    path.unlink(missing_ok=True)
            (gone if free else busy).append(each)
    return gone, busy


def told(folder: Path, found: list[Kept], gone: list[Kept] | None = None, busy: Iterable[Kept] = ()) -> str:
    """The cache in words, a line an array; with `gone`, what was removed instead."""
    if gone is not None:
        left = [f"{each.name}: is being written, and stays" for each in busy]
        return "\n".join([*left, f"{folder}: {_counted(gone)} removed, {_counted(found, less=gone)} left"])
    lines = [f"{_size(k.size):>10}  {_age(k.used):>8}  {k.rows:>9,} rows  {k.what}{_STATES[k.state]}" for k in found]
    if any(each.state == "old" for each in found):
        lines.append("what is of an earlier version is never read again: onelabel data cache --clear --days 30")
    return "\n".join([*lines, f"{folder}: {_counted(found)}"])


_STATES = {"whole": "", "begun": ", begun", "old": ", of an earlier version or damaged"}


def _counted(arrays: list[Kept], less: Iterable[Kept] = ()) -> str:
    without = {each.name for each in less}
    mine = [each for each in arrays if each.name not in without]
    return f"{len(mine)} array{'s' * (len(mine) != 1)}, {_size(sum(each.size for each in mine))}"


def _size(count: float) -> str:
    return f"{count / 2**30:,.1f} GiB" if count >= 2**30 else f"{count / 2**20:,.1f} MiB"


def _age(used: float) -> str:
    days = int((time.time() - used) // DAY)
    return "today" if days < 1 else f"{days} day{'s' * (days > 1)}"


def _files(folder: Path) -> list[tuple[Path, str]]:
    found = [(path, _FILE.fullmatch(path.name)) for path in folder.iterdir()] if folder.is_dir() else []
    return [(path, match[1]) for path, match in found if match and path.is_file()]


def _look(name: str, files: list[Path]) -> Kept:
    size, used = 0, 0.0
    for path in files:
        with contextlib.suppress(FileNotFoundError):  # another process gave it its final name meanwhile
            about = path.stat()
            size, used = size + about.st_size, max(used, about.st_mtime)
    ends = {path.name.removeprefix(name): path for path in files}
    (rows, key), state = _header(ends[".json"]) if {".json", ".npy"} <= ends.keys() else (0, {}), "whole"
    if not key and {".partial.npy", ".partial.jsonl"} <= ends.keys():
        (rows, key), state = _header(ends[".partial.jsonl"]), "begun"
    if key.get("version") != VERSIONS[name.partition("-")[0]]:
        state = "old"
    return Kept(name, files[0].parent, _words(name, key), rows, state, size, used)


def _header(path: Path) -> tuple[int, dict[str, Any]]:
    """An array's rows and key."""
    with contextlib.suppress(Exception):  # damaged: as if it were not there
        with open(path, encoding="utf-8") as file:
            found = json.loads(file.readline())
        return int(found["shape"][0]), dict(found["key"])
    return 0, {}


def _words(name: str, key: dict[str, Any]) -> str:
    if name.startswith("squares"):
        return f"pictures, {key.get('size', '?')} px"
    transform = key.get("transform")
    size = transform.get("squash", "?") if isinstance(transform, dict) else "?"
    return f"features, {key.get('backbone', '?')}, {size} px"
