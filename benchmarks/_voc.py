"""VOC 2012 from shards of the original pictures (../shared/data/pack_voc.py), for the scripts that train on it."""

from __future__ import annotations

import fcntl
import io
import mmap
import multiprocessing
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

_shared: Any = None  # the pictures, in memory that forked decoders share


def _decode(task: tuple[str, int, int, int, int]) -> int:
    from PIL import Image

    path, first, last, start, size = task
    with np.load(path) as shard:
        blob, ends = shard["blob"], shard["ends"]
    for i in range(first, last):
        begin = 0 if i == 0 else ends[i - 1]
        with Image.open(io.BytesIO(blob[begin : ends[i]].tobytes())) as image:
            picture = image.convert("RGB")
            if picture.size != (size, size):
                picture = picture.resize((size, size), Image.Resampling.BILINEAR)
            _shared[start + i] = np.asarray(picture)
    return last - first


def decode(folder: Path, rows: int, size: int, processes: int, into: np.ndarray) -> None:
    """Every shard's pictures into a uint8 array rows×size×size×3 of shared memory."""
    global _shared
    files = sorted(folder.rglob("shard-*.npz"))
    if not files:
        raise SystemExit(f"--shards: no shard-*.npz in {folder}")
    tasks: list[tuple[str, int, int, int, int]] = []
    total = 0
    for file in files:
        with np.load(file) as shard:
            start, count = int(shard["start"]), len(shard["ends"])
        total = max(total, start + count)
        tasks += [(str(file), i, min(i + 300, count), start, size) for i in range(0, count, 300)]
    if total != rows:
        raise SystemExit(f"--shards: {total} pictures, expected {rows} as in the labels")
    _shared = into
    began = time.perf_counter()
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        done = sum(pool.imap_unordered(_decode, tasks))
    print(f"decoded {done:,} pictures in {time.perf_counter() - began:.1f} s", flush=True)


def load_shards(folder: Path, rows: int, size: int, processes: int, kept: Path | None) -> np.ndarray:
    """The decoded pictures, from the file another process left, or decoded now (before CUDA starts: it forks)."""
    shape, nbytes = (rows, size, size, 3), rows * size * size * 3
    if kept is not None and (kept.exists() or shutil.disk_usage(kept.parent).free > nbytes * 1.05):
        with open(f"{kept}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                temporary = kept.with_name(f"{kept.name}.{os.getpid()}.tmp")
                decode(folder, rows, size, processes, np.memmap(temporary, np.uint8, "w+", shape=shape))
                temporary.replace(kept)
        return np.memmap(kept, np.uint8, "r", shape=shape)
    pictures = np.frombuffer(mmap.mmap(-1, nbytes), np.uint8).reshape(shape)
    decode(folder, rows, size, processes, pictures)
    return pictures


def voc_splits(
    shards: Path,
    labels: Path,
    *,
    size: int = 448,
    processes: int | None = None,
    decoded: Path | None = None,
    limit: int | None = None,
) -> Any:
    """The published split and label draw as `Splits`, pictures in memory under their names; `limit` rows of each part.

    Validation keeps the draw's labels beside the true ones, for choices without these; test labels are all observed.
    Decodes on all cores, or takes what another process left in `decoded`.
    """
    with np.load(labels) as file:
        names = tuple(str(c) for c in file["classes"])
        true, test_true = file["train_true"], file["test_true"]
        observed = file["train_observed_uniform1200"]
        paths = np.concatenate([file["train_images"], file["test_images"]])
    pictures = load_shards(shards, len(paths), size, processes or os.cpu_count() or 1, decoded)

    from onelabel.data import ArraySource, Dataset, Splits, split_rows
    from onelabel.labels import Labels

    def part(name: str, rows: np.ndarray, truth: np.ndarray, seen: Labels, offset: int) -> Dataset:
        rows = rows[:limit]
        source = ArraySource(pictures[rows + offset], list(map(str, paths[rows + offset])))
        return Dataset(f"voc2012/{name}", names, source, seen.take(rows), truth[rows])

    first, held = split_rows(len(true), 0.2)
    drawn, full = Labels.from_matrix(observed, names), Labels.from_true(test_true, names)
    splits = Splits(
        "voc2012",
        part("train", first, true, drawn, 0),
        part("validation", held, true, drawn, 0),
        part("test", np.arange(len(test_true)), test_true, full, len(true)),
    )
    print({name: len(p) for name, p in splits.parts.items()}, flush=True)
    return splits


def random_splits(rows: int, *, size: int, classes: int = 20) -> Any:
    """As many random pictures and labels in each part, for what has to be compiled before the pictures are here."""
    from onelabel.data import ArraySource, Dataset, Splits
    from onelabel.labels import Labels, drop_labels

    rng = np.random.default_rng(0)
    names = tuple(f"c{i}" for i in range(classes))

    def part(name: str) -> Dataset:
        true = (rng.random((rows, classes)) < 0.1).astype(np.uint8)
        true[np.arange(rows), rng.integers(classes, size=rows)] = 1
        pictures = rng.integers(256, size=(rows, size, size, 3), dtype=np.uint8)
        source = ArraySource(pictures, [f"{name}-{i}" for i in range(rows)])
        observed = Labels.from_true(true, names) if name == "test" else drop_labels(true)
        return Dataset(f"random/{name}", names, source, observed, true)

    return Splits("random", *map(part, ("train", "validation", "test")))
