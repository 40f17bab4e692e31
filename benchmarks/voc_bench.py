"""VOC 2012 fine-tuned through the bench, from shards of the original pictures, on a machine with a GPU.

    PYTHONPATH=src python3 benchmarks/voc_bench.py --shards DIR --labels labels.npz \
        --weights resnet50-v1-imagenet.safetensors --out $OUT/bench --runs "an:0,1 em gr:0,1,2 role@linearinit:0"

A word of --runs is NAME[@MODE][%DRAW][:SEED,…]: a method, or METHOD/VARIANT for an ablation of its recipe, fine-tuned
with seed 0 on the published draw unless said otherwise; a draw's colons are written as commas (%biased,1). --sweep NAME
adds a sweep of `onelabel bench sweeps`. DIR holds shards of ../shared/data/pack_voc.py, also in subfolders. Pictures
are decoded once and stay on the device; one classifier serves all runs, so its step is compiled once. Several such
processes may share --out, each run is claimed once; with --decoded FILE (on /dev/shm) the first leaves the decoded
pictures for the others. Runs that have a row are not made again.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import json
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


def parse_runs(text: str) -> list[tuple[str, str, str, list[int]]]:
    """ "em:0,1 gr/pseudo@linearinit%biased,2" → [(name, mode, draw, seeds), …]."""
    runs = []
    for word in text.split():
        rest, _, seeds = word.partition(":")
        rest, _, draw = rest.partition("%")
        name, _, mode = rest.partition("@")
        numbers = [int(seed) for seed in (seeds or "0").split(",")]
        runs.append((name.replace("/", ":"), mode or "finetune", draw.replace(",", ":") or "uniform1200", numbers))
    return runs


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=Path, required=True, help="searched with its subfolders")
    parser.add_argument("--labels", type=Path, required=True)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--out", required=True, help="a results folder (shared by processes), or a database's URL")
    parser.add_argument("--runs", default="")
    parser.add_argument("--sweep", action="append", default=[], help="a sweep's name, fine-tuned; may be repeated")
    parser.add_argument("--seeds", default="0", help="of the sweeps")
    parser.add_argument("--protocol", default="onelabel")
    parser.add_argument("--backbone", default="resnet50")
    parser.add_argument("--size", type=int, default=448)
    parser.add_argument("--epochs", type=int, help="for every method; the recipes' unless given")
    parser.add_argument("--set", action="append", default=[], help="a setting of training for all runs, as NAME=VALUE")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--eval-batch", type=int, default=64)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--decoded", type=Path, help="a file for the decoded pictures that processes share")
    parser.add_argument("--limit", type=int, help="use only so many rows of each part, to try the script out")
    parser.add_argument("--seconds", type=float, default=560.0, help="begin no run that would end after this")
    parser.add_argument("--gather", type=Path, help="at the end, write all rows of --out into this one file")
    parser.add_argument("--retry", action="store_true", help="make failed runs again")
    parser.add_argument("--reverse", action="store_true", help="begin with the last run: for a second process")
    parser.add_argument("--compile", default="auto", choices=["auto", "off"])
    parser.add_argument("--compile-mode", default="default")
    parser.add_argument("--cuda-graph", default="auto", choices=["auto", "off"])
    return parser.parse_args()


def main() -> None:
    began, args = time.perf_counter(), arguments()
    with np.load(args.labels) as file:
        names = tuple(str(c) for c in file["classes"])
        true, test_true = file["train_true"], file["test_true"]
        observed = file["train_observed_uniform1200"]
    pictures = load_shards(args.shards, len(true) + len(test_true), args.size, args.processes, args.decoded)

    import torch

    from onelabel import bench
    from onelabel.data import ArraySource, Dataset, Splits, split_rows
    from onelabel.labels import Labels
    from onelabel.models import build_classifier
    from onelabel.training import Feed
    from onelabel.training.config import TrainConfig
    from onelabel.training.machine import make_fabric

    plan = []
    own: dict[str, Any] = {"backbone": args.backbone, "size": args.size}
    own |= {"epochs": args.epochs} if args.epochs else {}
    for word in args.set:
        name, _, value = word.partition("=")
        try:
            own[name] = json.loads(value)
        except ValueError:
            own[name] = value
    dataset = "voc2012" if not args.limit else f"voc2012-first-{args.limit}"
    common: dict[str, Any] = {"protocol_name": args.protocol, "settings": own}
    for name, mode, draw, seeds in parse_runs(args.runs):
        plan += bench.make_plan("voc2012", [name], modes=[mode], draws=[draw], seeds=seeds, search=False, **common)
    for name in args.sweep:
        seeds = [int(seed) for seed in args.seeds.split(",")]
        plan += bench.sweep(name, "voc2012", mode="finetune", seeds=seeds, search=False, **common)
    plan = [bench.replace(p, dataset=dataset) for p in plan]
    if not plan:
        raise SystemExit("--runs, --sweep: nothing to do")
    if args.reverse:
        plan.reverse()

    def part(name: str, rows: np.ndarray, truth: np.ndarray, seen: np.ndarray, offset: int) -> Dataset:
        rows = rows[: args.limit] if args.limit else rows
        source = ArraySource(pictures[rows + offset])
        return Dataset(f"voc2012/{name}", names, source, Labels.from_matrix(seen[rows], names), truth[rows])

    first, held = split_rows(len(true), 0.2)
    full, test_full = ((2 * matrix.astype(np.int8) - 1).astype(np.int8) for matrix in (true, test_true))
    splits = Splits(
        "voc2012",
        part("train", first, true, observed, 0),
        part("validation", held, true, full, 0),
        part("test", np.arange(len(test_true)), test_true, test_full, len(true)),
    )
    print({name: len(p) for name, p in splits.parts.items()}, flush=True)

    machine = {
        "device": args.device,
        "eval_batch_size": args.eval_batch,
        "compile": args.compile,
        "compile_mode": args.compile_mode,
        "cuda_graph": args.cuda_graph,
    }
    fabric = make_fabric(TrainConfig.make({"size": args.size, **machine}))
    feeds = {name: Feed(p, fabric.device, size=args.size) for name, p in splits.parts.items()}
    classifier = build_classifier(len(names), backbone=args.backbone, weights=args.weights).to(fabric.device)
    print(bench.protocol(args.protocol), flush=True)
    tally = bench.run(
        plan,
        splits,
        out=args.out,
        feeds=feeds,
        fabric=fabric,
        model=classifier,
        settings=machine,
        weights=args.weights.name if args.weights else "random",
        device=str(torch.device(fabric.device)),
        seconds=args.seconds - (time.perf_counter() - began),
        retry=args.retry,
        told=lambda row: print(line(row), flush=True),
    )
    if args.gather is not None:
        bench.gather(args.out, args.gather)
    print(f"{tally}; {time.perf_counter() - began:.0f} s", flush=True)


def line(row: Any) -> str:
    """A result in one line."""
    if not row.done:
        return f"{row.label:16s} {row.mode} seed {row.seed}  FAILED {row.error}"
    speeds = row.extra.get("images_per_second", [])
    averaged = row.test_map_averaged_flip
    return (
        f"{row.label:16s} {row.mode} {row.draw} seed {row.seed}  plain {row.test_map:.2f} "
        f"(epoch {row.best_epoch + 1})  averaged, flips {float('nan') if averaged is None else averaged:.2f}  "
        f"{np.median(speeds) if speeds else 0:,.0f} img/s  {row.seconds:.0f} s"
    )


if __name__ == "__main__":
    main()
