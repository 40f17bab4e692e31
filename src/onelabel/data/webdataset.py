"""WebDataset shards: .tar files of pictures and labels, read at random through an index of their members."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import tarfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelabel.system import need, progress, workers

from .base import Draw, Splits
from .images import MAX_PIXELS, SUFFIXES, ImageError, Raw
from .own import Complete, Records, class_list, own_splits, part_name
from .report import DataError, Problem, Report
from .sources import ImageSource, Rows
from .verify import Verify


class ShardSource(ImageSource):
    """Pictures inside uncompressed .tar files: one positioned read each, no extraction."""

    def __init__(
        self,
        shards: Sequence[str],
        paths: Sequence[str],
        shard: NDArray[np.int32],
        offset: NDArray[np.int64],
        length: NDArray[np.int64],
    ) -> None:
        self.shards, self.paths, self.max_pixels = list(shards), list(paths), MAX_PIXELS
        self.shard, self.offset, self.length = shard, offset, length
        self._open: dict[int, int] = {}

    def raw(self, row: int) -> Raw:
        number = int(self.shard[row])
        try:
            handle = self._open.get(number)
            if handle is None:
                handle = self._open.setdefault(number, os.open(self.shards[number], os.O_RDONLY))
            return os.pread(handle, int(self.length[row]), int(self.offset[row]))
        except OSError as error:
            raise ImageError("unreadable", self.paths[row], error) from None

    def take(self, rows: Rows) -> ShardSource:
        index = np.asarray(rows, np.int64)
        names = [self.paths[row] for row in index]
        return ShardSource(self.shards, names, self.shard[index], self.offset[index], self.length[index])

    def fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for path in self.shards:
            status = os.stat(path)
            digest.update(f"{os.path.basename(path)} {status.st_size} {status.st_mtime_ns}\n".encode())
        for array in (self.shard, self.offset, self.length):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def nearby_order(self, seed: int, *, shards_at_once: int = 4) -> NDArray[np.int64]:
        """A random order for an epoch that reads a few shards at a time, so that slow disks read in long runs."""
        rng = np.random.RandomState(seed)
        groups = np.array_split(rng.permutation(len(self.shards)), max(1, -(-len(self.shards) // shards_at_once)))
        return np.concatenate([rng.permutation(np.flatnonzero(np.isin(self.shard, group))) for group in groups])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}

    def __del__(self) -> None:
        for handle in self.__dict__.get("_open", {}).values():
            os.close(handle)


@dataclass
class _Sample:
    """What a shard holds under one key."""

    picture: tarfile.TarInfo | None = None
    positives: list[str] | None = None
    negatives: list[str] | None = None


def load_shards(
    path: str | Path,
    *,
    class_names: Sequence[str] | str | Path | None = None,
    complete: Complete = False,
    verify: Verify = "none",
    draw: Draw | None = None,
    report: Report | None = None,
) -> Splits[Any]:
    """Shards by a brace pattern (`train-{000..012}.tar`), a wildcard, a folder of .tar files, or one file.

    A sample is the members of one shard that share a name up to the first dot: a picture, and `.cls` (a class number
    or name) or `.json` (`label` or `labels`, and perhaps `negatives`). Where `class_names` is given, class numbers
    count from 0 in it. Shards whose names start with train, val or test are those parts.
    """
    report = report if report is not None else Report()
    shards = expand(str(path))
    above = os.path.commonpath([os.path.dirname(os.path.abspath(shard)) for shard in shards])
    records = Records()
    found: list[tuple[int, int, int]] = []
    with progress("indexing shards", len(shards)) as advance, ThreadPoolExecutor(max(1, workers())) as pool:
        for number, (samples, problems) in enumerate(pool.map(_index, shards)):
            report.extend(problems)
            shard = os.path.relpath(shards[number], above)
            part = part_name(os.path.basename(shard).split("-")[0].split(".")[0].split("_")[0])
            for key, sample in samples.items():
                if sample.picture is None:
                    report.add("malformed", f"{shard}: {key}", "no picture")
                    continue
                # keys begin anew in every shard of some writers
                records.add(f"{shard}:{key}", sample.positives or [], sample.negatives or [], part)
                found.append((number, sample.picture.offset_data, sample.picture.size))
            advance(1)
    if class_names is not None:
        class_names = class_list(class_names, records)
        records.positives = [_by_number(labels, class_names) for labels in records.positives]
        records.negatives = [_by_number(labels, class_names) for labels in records.negatives]
    places = np.array(found, np.int64).reshape(-1, 3)
    source = ShardSource(shards, records.names, places[:, 0].astype(np.int32), places[:, 1], places[:, 2])
    return own_splits(
        Path(shards[0]).stem,
        source,
        records,
        class_names=class_names,
        complete=complete,
        draw=draw or Draw(),
        report=report,
        verify=verify,
        notes=(f"{len(shards)} WebDataset shards",),
    )


def expand(pattern: str) -> list[str]:
    """The shards that a folder, a wildcard or a brace pattern names; every one must exist."""
    if "://" in pattern or pattern.startswith("pipe:"):
        raise DataError(f"{pattern}: shards are read from disk; download them first")
    path = os.path.expanduser(pattern)
    if os.path.isdir(path):
        shards = sorted(glob.glob(os.path.join(glob.escape(path), "*.tar")))
    elif "{" in path:
        shards = list(need("webdataset", "data").shardlists.expand_urls(path))
    else:
        shards = [path] if os.path.exists(path) else sorted(glob.glob(path))
    missing = [shard for shard in shards if not os.path.isfile(shard)]
    if missing or not shards:
        raise DataError(f"{missing[0] if missing else pattern}: no such shard")
    return list(dict.fromkeys(shards))


def _index(shard: str) -> tuple[dict[str, _Sample], list[Problem]]:
    samples: dict[str, _Sample] = {}
    problems: list[Problem] = []
    name = os.path.basename(shard)
    try:
        with tarfile.open(shard, "r:") as archive:
            for member in archive:
                if not member.isreg():
                    continue
                folder, file = os.path.split(member.name)
                stem, _, suffix = file.partition(".")
                key, suffix = os.path.join(folder, stem), suffix.lower()
                sample = samples.setdefault(key, _Sample())
                if f".{suffix.rpartition('.')[2]}" in SUFFIXES:
                    sample.picture = member
                elif suffix in ("cls", "json") and member.size <= 1 << 20:
                    stream = archive.extractfile(member)
                    try:
                        _labels(sample, suffix, stream.read() if stream else b"")
                    except (ValueError, TypeError, RecursionError) as error:
                        problems.append(Problem("malformed", f"{name}: {member.name}", str(error)))
            # tarfile takes a header cut in two for the end; a whole archive ends with a block of zeros.
            if os.path.getsize(shard) < archive.offset + tarfile.BLOCKSIZE:
                problems.append(Problem("truncated", name, "it ends without its end mark"))
    except (tarfile.TarError, OSError, EOFError) as error:
        problems.append(Problem("broken" if samples == {} else "truncated", name, str(error)))
    return samples, problems


def _labels(sample: _Sample, suffix: str, data: bytes) -> None:
    if suffix == "cls":
        sample.positives = [*(sample.positives or []), *_listed(data.decode())]
        return
    content = json.loads(data)
    if not isinstance(content, dict):
        raise ValueError("expected an object with label or labels")
    said = [content[name] for name in ("labels", "label") if content.get(name) is not None]
    sample.positives = [*(sample.positives or []), *(_listed(said[0]) if said else [])]
    sample.negatives = _listed(content.get("negatives"))


def _listed(value: Any) -> list[str]:
    items = value if isinstance(value, list) else [value]
    return [str(item).strip() for item in items if item is not None and str(item).strip()]


def _by_number(labels: Sequence[str], names: Sequence[str]) -> list[str]:
    known = set(names)
    return [
        names[int(label)] if label not in known and label.isdecimal() and int(label) < len(names) else label
        for label in labels
    ]
