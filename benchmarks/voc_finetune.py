"""Fine-tune VOC 2012 on the original pictures through the real training room, and compare with the anchors.

    PYTHONPATH=src python3 benchmarks/voc_finetune.py --shards DIR --weights resnet50-v1-imagenet.safetensors \
        --labels labels.npz --out $OUT/voc --runs "an:0 em:0,1,2 gr:0,1,2 bce:0"

DIR holds the shards of ../shared/data/pack_voc.py. Adam, batch 8, lr 1e-5, head at 10×, bf16, 10 epochs (GR 8), best
epoch by validation mAP. Every run also averages its weights (EMA .998), which changes nothing in the plain ones: both
columns of the anchors come from one training. Results are written after each run.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import mmap
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

# test mAP: (plain, averaged with flips), from ../shared/anchors.md
ANCHORS = {
    "bce": (88.9, 89.6),
    "an": (84.7, 85.4),
    "an-ls": (85.9, 86.2),
    "role": (85.7, 86.3),
    "em": (86.9, 87.4),
    "em-apl": (86.9, 87.4),
    "gr": (87.35, 87.95),
}
EPOCHS = {"gr": 8}
HYPER: dict[str, dict[str, Any]] = {
    "em": {"alpha": 0.2},
    "em-apl": {"alpha": 0.2, "beta": 0.02},
    "role": {"expected_positives": 1.5},
}

_shared: Any = None  # the pictures, in memory that forked decoders share


def _decode(task: tuple[str, int, int, int, int]) -> int:
    from PIL import Image

    path, first, last, start, size = task
    with np.load(path) as shard:
        blob, ends = shard["blob"], shard["ends"]
    pictures = np.frombuffer(_shared, np.uint8).reshape(-1, size, size, 3)
    for i in range(first, last):
        begin = 0 if i == 0 else ends[i - 1]
        with Image.open(io.BytesIO(blob[begin : ends[i]].tobytes())) as image:
            picture = image.convert("RGB")
            if picture.size != (size, size):
                picture = picture.resize((size, size), Image.Resampling.BILINEAR)
            pictures[start + i] = np.asarray(picture)
    return last - first


def load_shards(folder: Path, rows: int, size: int, processes: int) -> np.ndarray:
    """Every shard's pictures as one uint8 array rows×size×size×3; must run before CUDA starts (it forks)."""
    global _shared
    files = sorted(folder.glob("shard-*.npz"))
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
    _shared = mmap.mmap(-1, rows * size * size * 3)
    began = time.perf_counter()
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        done = sum(pool.imap_unordered(_decode, tasks))
    print(f"decoded {done:,} pictures in {time.perf_counter() - began:.1f} s", flush=True)
    return np.frombuffer(_shared, np.uint8).reshape(rows, size, size, 3)


def parse_runs(text: str) -> list[tuple[str, int]]:
    """ "em:0,1 an:0" → [("em", 0), ("em", 1), ("an", 0)]."""
    runs = []
    for word in text.split():
        name, _, seeds = word.partition(":")
        runs += [(name, int(seed)) for seed in (seeds or "0").split(",")]
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=Path, required=True)
    parser.add_argument("--labels", type=Path, required=True)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", default="an:0 em:0 gr:0 bce:0")
    parser.add_argument("--backbone", default="resnet50")
    parser.add_argument("--size", type=int, default=448)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-5)
    parser.add_argument("--head-lr-scale", type=float, default=10.0)
    parser.add_argument("--epochs", type=int, help="for every method; 10 and GR 8 unless given")
    parser.add_argument("--ema", type=float, default=0.998)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--eval-batch", type=int, default=64)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=int, help="use only so many rows of each part, to try the script out")
    parser.add_argument("--seconds", type=float, default=560.0, help="begin no run that would end after this")
    parser.add_argument("--compile", default="auto", choices=["auto", "off"])
    parser.add_argument("--compile-mode", default="default")
    parser.add_argument("--cuda-graph", default="auto", choices=["auto", "off"])
    args = parser.parse_args()
    began = time.perf_counter()
    with np.load(args.labels) as labels:
        names = tuple(str(c) for c in labels["classes"])
        true, test_true = labels["train_true"], labels["test_true"]
        observed = labels["train_observed_uniform1200"]
    pictures = load_shards(args.shards, len(true) + len(test_true), args.size, args.processes)

    import torch

    from onelabel.data import ArraySource, Dataset, Splits, split_rows
    from onelabel.labels import Labels
    from onelabel.models import build_classifier
    from onelabel.training import Feed, train
    from onelabel.training.config import TrainConfig
    from onelabel.training.machine import make_fabric

    def part(name: str, rows: np.ndarray, truth: np.ndarray, seen: np.ndarray, offset: int) -> Dataset:
        rows = rows[: args.limit] if args.limit else rows
        source = ArraySource(pictures[rows + offset])
        return Dataset(f"voc2012/{name}", names, source, Labels.from_matrix(seen[rows], names), truth[rows])

    first, held = split_rows(len(true), 0.2)
    full = (2 * true.astype(np.int8) - 1).astype(np.int8)
    test_full = (2 * test_true.astype(np.int8) - 1).astype(np.int8)
    train_part = part("train", first, true, observed, 0)
    test_part = part("test", np.arange(len(test_true)), test_true, test_full, len(true))
    splits = Splits("voc2012", train_part, part("validation", held, true, full, 0), test_part)
    complete = Dataset(
        "voc2012/train-full", names, train_part.source, Labels.from_true(train_part.true, names), train_part.true
    )
    print({name: len(p) for name, p in splits.parts.items()}, flush=True)

    settings = {
        "backbone": args.backbone,
        "size": args.size,
        "batch_size": args.batch,
        "lr": args.lr,
        "head_lr_scale": args.head_lr_scale,
        "ema": args.ema,
        "flip_test": True,
        "eval_batch_size": args.eval_batch,
        "device": args.device,
        "compile": args.compile,
        "compile_mode": args.compile_mode,
        "cuda_graph": args.cuda_graph,
        "save_scores": False,
    }
    fabric = make_fabric(TrainConfig.make(settings))
    feeds = {name: Feed(p, fabric.device, size=args.size) for name, p in splits.parts.items()}
    with_all = Feed(complete, fabric.device, inputs=feeds["train"].inputs)
    # One classifier for all runs, its weights put back in place: the compiled step is then compiled once.
    classifier = build_classifier(len(names), backbone=args.backbone, weights=args.weights).to(fabric.device)
    start = {name: value.clone() for name, value in classifier.state_dict().items()}
    args.out.mkdir(parents=True, exist_ok=True)
    results: list[dict[str, Any]] = []
    longest = 0.0
    for name, seed in parse_runs(args.runs):
        if time.perf_counter() - began + longest > args.seconds:
            print(f"no time left for {name}:{seed}", flush=True)
            continue
        classifier.load_state_dict(start)
        torch.manual_seed(seed)
        classifier.head.reset_parameters()  # type: ignore[operator]
        own = {**feeds, "train": with_all} if name == "bce" else feeds
        data = Splits(splits.name, complete, splits.validation, splits.test) if name == "bce" else splits
        clock = time.perf_counter()
        run = train(
            data,
            method=name,
            hyper=HYPER.get(name, {}),
            feeds=own,
            fabric=fabric,
            model=classifier,
            seed=seed,
            epochs=args.epochs or EPOCHS.get(name, 10),
            **settings,
        )
        taken = time.perf_counter() - clock
        longest = max(longest, taken) if results else taken * 0.8
        result = {"method": name, "seed": seed, "seconds": round(taken, 1), **run.result, "history": run.history}
        results.append(result)
        del run
        gc.collect()
        temporary = args.out / "results.json.tmp"
        temporary.write_text(
            json.dumps({"settings": {k: str(v) for k, v in vars(args).items()}, "runs": results}, indent=1)
        )
        temporary.replace(args.out / "results.json")
        print(_line(result), flush=True)
    print("\n" + table(results))
    (args.out / "table.txt").write_text(table(results) + "\n")


def _line(result: dict[str, Any]) -> str:
    plain, ema = result["plain"], result.get("ema", {})
    speeds = result["images_per_second"]
    return (
        f"{result['method']:7s} seed {result['seed']}  "
        f"plain {plain['test_mAP']:.2f} (epoch {plain['best_epoch'] + 1})  "
        f"averaged, flips {ema.get('test_mAP_flip', float('nan')):.2f}  {np.median(speeds):,.0f} img/s  "
        f"{result['seconds']:.0f} s"
    )


def table(results: list[dict[str, Any]]) -> str:
    """Mean test mAP of each method beside the anchors."""
    lines = ["method   runs  plain   anchor    Δ     averaged,flips  anchor    Δ    img/s"]
    for name in dict.fromkeys(r["method"] for r in results):
        mine = [r for r in results if r["method"] == name]
        plain = np.mean([r["plain"]["test_mAP"] for r in mine])
        averaged = np.mean([r.get("ema", {}).get("test_mAP_flip", np.nan) for r in mine])
        first, second = ANCHORS.get(name, (np.nan, np.nan))
        speed = np.median([s for r in mine for s in r["images_per_second"][1:]] or [np.nan])
        lines.append(
            f"{name:8s} {len(mine):3d}  {plain:6.2f}  {first:6.2f}  {plain - first:+5.2f}"
            f"      {averaged:6.2f}      {second:6.2f}  {averaged - second:+5.2f}  {speed:6,.0f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
