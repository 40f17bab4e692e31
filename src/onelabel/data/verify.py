"""Looking at every picture before training does: headers, or everything; what cannot be read leaves its split."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from onelabel.system import progress

from .base import Dataset, Splits
from .images import ImageError
from .pool import process_map
from .report import Problem, Report, no_rows
from .sources import ArraySource, FileSource, ImageSource

Verify = Literal["none", "header", "decode"]
_CHUNK = 256


def _look(decode: bool, source: ImageSource) -> list[tuple[int, Problem]]:
    found = []
    for row in range(len(source)):
        name = source.paths[row]
        try:
            info = source.inspect(row, decode=decode)
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
    """Report picture files with the same bytes as another, of any part; only files of equal size are read."""
    by_size: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for part in splits.parts.values():
        source = getattr(part, "source", None)
        if isinstance(source, FileSource):
            for name in source.paths:
                path = os.path.join(source.root, name)
                by_size[os.path.getsize(path)].append((name, path))
    found: dict[str, str] = {}
    for group in by_size.values():
        first: dict[bytes, str] = {}
        for name, path in group if len(group) > 1 else ():
            twin = first.setdefault(_digest(path), name)
            if twin != name:
                found[name] = twin
    for name in sorted(found):
        splits.report.add("duplicate-content", name, f"as {found[name]}")


def _digest(path: str) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.digest()


def with_parts(splits: Splits[Any], parts: Mapping[str, Any]) -> Splits[Any]:
    """`splits` with parts that lost rows: one without any leaves, and training rows there must be."""
    if not len(parts["train"]):
        raise no_rows(splits.name, splits.report)
    left: dict[str, Any] = {name: part if part is None or len(part) else None for name, part in parts.items()}
    return replace(splits, **left)
