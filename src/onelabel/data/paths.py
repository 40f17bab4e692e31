"""Looking for files: which listed ones are there, and which lie in a folder."""

from __future__ import annotations

import os
import shlex
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .images import FOREIGN, SUFFIXES
from .report import DataError, Report


def present(root: str | Path, paths: Sequence[str], report: Report) -> NDArray[np.bool_]:
    """Which of `paths` below `root` exist; each folder is listed once. What is missing goes to the report."""
    by_folder: dict[str, list[int]] = defaultdict(list)
    for row, path in enumerate(paths):
        by_folder[os.path.dirname(path)].append(row)
    there = np.zeros(len(paths), bool)
    for folder, rows in by_folder.items():
        try:
            with os.scandir(os.path.join(root, folder)) as entries:
                names = {entry.name for entry in entries}
        except OSError:
            continue
        for row in rows:
            there[row] = os.path.basename(paths[row]) in names
    if len(paths) and not there.any():
        raise DataError(
            f"{Path(root) / paths[0]}: none of the {len(paths):,} listed pictures is there; "
            "put them there, or pass -o pictures=false (pictures=False) for the labels alone"
        )
    for row in np.flatnonzero(~there).tolist():
        report.add("missing", paths[row])
    return there


def list_pictures(folder: str | Path, report: Report, *, base: str | Path | None = None) -> list[str]:
    """Every picture below `folder` by its suffix, sorted, relative to `base`; hidden files are skipped.

    Folders reached twice through links are read once; a link to a folder above, and what has another suffix, is named
    in the report.
    """
    origin = str(base if base is not None else folder)
    found: list[str] = []
    seen: set[tuple[int, int]] = set()
    stack = [str(folder)]
    while stack:
        here = stack.pop()
        try:
            status = os.stat(here)
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            entries = list(os.scandir(here))
        except OSError as error:
            report.add("unreadable", os.path.relpath(here, origin), error.strerror)
            continue
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if not entry.name.isascii() and not _is_text(entry.name):
                shown = ascii(os.path.relpath(entry.path, origin))
                report.add("unreadable", shown, "its name is not UTF-8; rename it")
            elif entry.is_dir() and entry.is_symlink() and leads_up(entry.path, folder):
                report.add("linked-folder", os.path.relpath(entry.path, origin), f"→ {os.path.realpath(entry.path)}")
            elif entry.is_dir():
                stack.append(entry.path)
            elif kind := not_read(entry.name):
                report.add(kind, os.path.relpath(entry.path, origin))
            else:
                found.append(os.path.relpath(entry.path, origin))
    return sorted(found)


def not_read(name: str) -> str:
    """The kind of problem with a file that by its suffix is not read as a picture; empty for one that is."""
    suffix = os.path.splitext(name)[1].lower()
    return "" if suffix in SUFFIXES else "other-format" if suffix in FOREIGN else "not-a-picture"


def leads_up(path: str, folder: str | Path) -> bool:
    """Whether `path` is, links followed, `folder` or a folder above it."""
    return Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(path))


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def native(path: str, root: str | Path) -> str:
    """The path, normal; as Windows writes it, with backslashes, where only with slashes there is such a file."""
    plain = os.path.normpath(path)
    if "\\" in plain and not os.path.exists(os.path.join(root, plain)):
        slashed = os.path.normpath(path.replace("\\", "/"))
        return slashed if os.path.exists(os.path.join(root, slashed)) else plain
    return plain


def find_tree(name: str, root: str | Path, *candidates: str, marker: str) -> Path:
    """The first of root/candidate that holds `marker` of a benchmark; raises `DataError` with how to come by it."""
    base = Path(root).expanduser()
    for candidate in candidates:
        if (base / candidate / marker).exists():
            return base / candidate
    where = " or ".join(str(base / candidate / marker) for candidate in candidates)
    command = shlex.join(["onelabel", "data", "download", name, "--root", str(base)])
    remedy = f"`{command}` fetches {name} or says what to put there; --root (root=) is where it lies already"
    raise DataError(f"root: {base} does not hold {marker}; {remedy}; expected {where}")


def inside(path: str) -> bool:
    """Whether a relative path stays below the folder it is relative to."""
    parts = path.replace("\\", "/").split("/")
    return bool(path) and "\0" not in path and ".." not in parts and not os.path.isabs(path) and ":" not in parts[0]
