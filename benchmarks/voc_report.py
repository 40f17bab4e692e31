"""A real VOC 2012 fine-tuning and its report, on a machine with a GPU: the screenshot's page, and recording in use.

    PYTHONPATH=src python3 benchmarks/voc_report.py --shards DIR --labels labels.npz \
        --weights resnet50-v1-imagenet.safetensors --out $OUT

Trains AN, EM, GR and full labels once each at the papers' settings (about a minute each on an H200), published split
and draw, 448 px. The run folders stay in --runs; $OUT gets report.html, and of every run metrics and recording.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from voc_bench import load_shards

SETTINGS: dict[str, dict[str, Any]] = {
    "an": {"epochs": 10},
    "em": {"epochs": 10, "head_lr_scale": 1.0, "hyper": {"alpha": 0.2}},
    "gr": {"epochs": 8},
    "bce": {"epochs": 10},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=Path, required=True)
    parser.add_argument("--labels", type=Path, required=True)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("/tmp/voc-report"))
    parser.add_argument("--methods", default="an,em,gr,bce")
    parser.add_argument("--backbone", default="resnet50")
    parser.add_argument("--size", type=int, default=448)
    parser.add_argument("--epochs", type=int, help="instead of the papers'")
    parser.add_argument("--limit", type=int, help="use only so many rows of each part, to try the script out")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    with np.load(args.labels) as file:
        names = tuple(map(str, file["classes"]))
        true, test_true, observed = file["train_true"], file["test_true"], file["train_observed_uniform1200"]
        paths = [*map(str, file["train_images"]), *map(str, file["test_images"])]
    pictures = load_shards(args.shards, len(true) + len(test_true), args.size, os.cpu_count() or 1, None)

    from onelabel.data import ArraySource, Dataset, Splits, split_rows
    from onelabel.labels import Labels
    from onelabel.report import write_report
    from onelabel.training import train

    def part(name: str, rows: np.ndarray, truth: np.ndarray, seen: np.ndarray, offset: int) -> Dataset:
        rows = rows[: args.limit] if args.limit else rows
        source = ArraySource(pictures[rows + offset], [paths[i + offset] for i in rows])
        return Dataset(f"voc2012/{name}", names, source, Labels.from_matrix(seen[rows], names), truth[rows])

    first, held = split_rows(len(true), 0.2)
    test_seen = (2 * test_true.astype(np.int8) - 1).astype(np.int8)
    splits = Splits(
        "voc2012",
        part("train", first, true, observed, 0),
        part("validation", held, true, observed, 0),
        part("test", np.arange(len(test_true)), test_true, test_seen, len(true)),
    )
    known = Labels.from_true(splits.train.true, names)
    full = dataclasses.replace(splits, train=dataclasses.replace(splits.train, observed=known))
    made = []
    for method in args.methods.split(","):
        settings = {**SETTINGS[method], **({"epochs": args.epochs} if args.epochs else {})}
        run = train(
            full if method == "bce" else splits,
            method=method,
            out=args.runs / method,
            resume=True,
            backbone=args.backbone,
            weights=None if args.weights is None else str(args.weights),
            size=args.size,
            device=args.device,
            record="on",
            logger="none",
            **settings,
        )
        made.append(args.runs / method)
        print(f"{method}: test mAP {run.result['test_mAP']:.2f}", flush=True)
        (args.out / method).mkdir(parents=True, exist_ok=True)
        for name in ("metrics.jsonl", "result.json", "config.toml", "recording.safetensors"):
            shutil.copy2(args.runs / method / name, args.out / method / name)
    note = (
        f"ResNet-50 at {args.size} px, published split and label draw, one seed each." if not args.limit else "A trial."
    )
    print(write_report(made, args.out / "report.html", data=splits, title="VOC 2012, fine-tuned", note=note))


if __name__ == "__main__":
    main()
