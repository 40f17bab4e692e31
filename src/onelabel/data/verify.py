"""Looking at every picture before training does: headers, or everything; what cannot be read leaves its split."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onelabel.system import Advance, progress

from .base import Dataset, Splits
from .images import ImageError
from .pool import process_map
from .report import Problem, Report, no_rows
from .sources import ArraySource, FileSource, ImageSource

Verify = Literal["none", "header", "decode"]
_CHUNK = 256


def _look(decode: bool, source: ImageSource) -> list[tuple[int, Problem]]:
    found, dim = [], True
    for row in range(len(source)):
        name = source.paths[row]
        try:
            info = source.inspect(row, decode=decode)
            if not decode and dim and "deep" in info.notes:  # read until one is bright: then there is nothing to say
                info = source.inspect(row, decode=True)
                dim = "dim" in info.notes
        except ImageError as error:
            found.append((row, Problem(error.kind, error.name, error.detail)))
        else:
            detail = f"{info.width}×{info.height} {info.format} {info.mode}"
            found += [(row, Problem(kind, name, detail)) for kind in info.notes]
    return found


def readable(
    source: ImageSource, report: Report, *, verify: Verify = "header", workers: int | None = None
) -> NDArray[np.bool_]:
    """Which rows can be read. "header" opens each picture, "decode" reads all of it (truncated ones show only then)."""
    if verify not in ("none", "header", "decode"):
        raise ValueError(f"verify: {verify!r}, expected 'none', 'header' or 'decode'")
    usable = np.ones(len(source), bool)
    if verify == "none" or isinstance(source, ArraySource):  # arrays are there already
        return usable
    chunks = [range(start, min(start + _CHUNK, len(source))) for start in range(0, len(source), _CHUNK)]
    count = 1 if len(chunks) < 8 and verify == "header" else workers
    with progress("looking at pictures", len(source)) as advance:
        each = (source.take(rows) for rows in chunks)  # a chunk's names go to its process, not everybody's
        looked = process_map(partial(_look, verify == "decode"), each, workers=count)
        for rows, found in zip(chunks, looked, strict=True):
            for row, problem in found:
                usable[rows[row]] &= not problem.fatal
                report.add(problem.kind, problem.name, problem.detail)
            advance(len(rows))
    report.settle_dim()
    return usable


def verify_splits(splits: Splits[Any], *, verify: Verify = "decode", workers: int | None = None) -> Splits[Any]:
    """The same splits without the pictures that cannot be read; they are named in the report."""
    parts: dict[str, Any] = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    for name, part in parts.items():
        if isinstance(part, Dataset) and not part.decoded:
            usable = readable(part.source, part.report, verify=verify, workers=workers)
            kept = part if usable.all() else part.take(np.flatnonzero(usable))
            parts[name] = replace(kept, decoded=verify == "decode")
    return with_parts(splits, parts)


def mention_repeats(splits: Splits[Any]) -> None:
    """Report picture files with the same bytes as another, of any part."""
    sources = [getattr(part, "source", None) for part in splits.parts.values()]
    files = [(s, name) for s in sources if isinstance(s, FileSource) for name in s.paths]
    _report_same([File(name, name, os.path.join(source.root, name)) for source, name in files], splits.report)


def mention_shared(source: FileSource, parts: Sequence[str], usable: NDArray[np.bool_], report: Report) -> None:
    """Report picture files with the same bytes as one of another part, which measure nothing there."""
    rows = sorted(np.flatnonzero(usable).tolist(), key=lambda row: parts[row] != "train")  # the held-out one is named
    files = [(parts[row], source.paths[row]) for row in rows]
    _report_same([File(part, name, os.path.join(source.root, name)) for part, name in files], report)


class File(NamedTuple):
    group: str
    name: str
    path: str


def _report_same(files: list[File], report: Report) -> None:
    """Report files with the same bytes as an earlier one of another group.

    Of files of equal size the ends are read, which are a picture's own where its beginning may be a camera's, and of
    those with the same end everything.
    """
    same = [files]
    for look in (os.path.getsize, partial(_digest, last=4096), _digest):
        with progress("comparing pictures", sum(map(len, same))) as advance:
            same = [alike for each in same for alike in _alike(each, look, advance)]
    found = {file.name: each[0].name for each in same for file in each if file.group != each[0].group}
    for name in sorted(set(found) - set(report.names("duplicate-content"))):
        report.add("duplicate-content", name, f"as {found[name]}")


def _alike(files: list[File], look: Callable[[str], object], advance: Advance) -> list[list[File]]:
    """The files that look the same, where they are of several groups."""
    found: dict[object, list[File]] = defaultdict(list)
    for file in files:
        found[look(file.path)].append(file)
        advance(1)
    return [each for each in found.values() if len({file.group for file in each}) > 1]


def _digest(path: str, last: int | None = None) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        if last is not None:
            file.seek(max(0, os.path.getsize(path) - last))
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.digest()


def with_parts(splits: Splits[Any], parts: Mapping[str, Any]) -> Splits[Any]:
    """`splits` with parts that lost rows: one without any leaves, and training rows there must be."""
    if not len(parts["train"]):
        raise no_rows(splits.name, splits.report)
    left: dict[str, Any] = {name: part if part is None or len(part) else None for name, part in parts.items()}
    return replace(splits, **left)
