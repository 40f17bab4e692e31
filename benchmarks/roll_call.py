"""Roll call's parts on other datasets, every row trained alike, with averaged weights.

    python benchmarks/roll_call.py [--seeds 3] [--draws uniform,biased:1,biased:-1] [--json FILE]
    python benchmarks/roll_call.py --photographs DIR --weights FILE --mode linearinit [--rows 'em; gr']
    python benchmarks/roll_call.py --voc SHARDS --labels FILE --weights FILE --mode linearinit [--size 128]

digits-scenes, the demo's small CNN, trained on other scenes before and with the demo's settings: each seed has scenes,
draw and backbone of its own. Or the 2,000 photographs of landscapes of `elsewhere.py`, ResNet-50 at 160 px: each seed
has a split (60% train, 15% validation, 25% test) and a draw of its own. Or VOC 2012 (shards of pack_voc.py and
labels.npz), published split and draw, the same network at a size that two CPU cores train. A file that is there is
gone on with.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from _voc import voc_splits

from onelabel.bench.draws import observe
from onelabel.data import Splits, load_dataset
from onelabel.demo import steps
from onelabel.demo.settings import FULL
from onelabel.labels import Labels, drop_labels
from onelabel.system import atomic_write
from onelabel.training import train

ROWS: dict[str, dict[str, Any]] = {
    "full labels": {"method": "bce"},
    "an": {"method": "an"},
    "em": {"method": "em"},
    "gr": {"method": "gr"},
    "roll-call, no student": {"method": "roll-call", "student": "off"},
    "roll-call, student of the whole": {"method": "roll-call", "student_looks": "whole"},
    "roll-call, each class by itself": {"method": "roll-call", "student_context": "off"},
    "roll-call, told of annotators": {"method": "roll-call", "student_annotators": "on"},
    "roll-call, targets not smoothed": {"method": "roll-call", "student_smoothing": 0.0},
    "roll-call, smoothed by 0.1": {"method": "roll-call", "student_smoothing": 0.1},
    "roll-call, smoothed by 0.4": {"method": "roll-call", "student_smoothing": 0.4},
    "roll-call": {"method": "roll-call"},
    "em with a student": {"method": "em", "student": "on"},
    "em with a student, each class by itself": {"method": "em", "student": "on", "student_context": "off"},
    "gr with a student": {"method": "gr", "student": "on"},
    "roll-call, one label held out too": {"method": "roll-call"},
    "em with a student, one label held out too": {"method": "em", "student": "on"},
    "gr, one label held out too": {"method": "gr"},
}

KEYS = ("plain", "averaged", "validation", "seconds")


#: ResNet-50 on 1,200 photographs: what two CPU cores train in minutes, chosen before anything was measured.
PHOTOGRAPHS: dict[str, Any] = {
    "backbone": "resnet50", "size": 160, "batch_size": 16, "lr": 3e-5, "epochs": 8, "ema": 0.99,
    "precision": "bf16-mixed",
}  # fmt: skip


@contextmanager
def digits(seed: int) -> Iterator[tuple[Splits[Any], dict[str, Any]]]:
    with tempfile.TemporaryDirectory() as place:
        scenes = steps.make_scenes(Path(place), FULL, seed)
        weights = steps.make_backbone(Path(place), FULL, seed, None)
        yield scenes.splits, {**FULL.training, "weights": weights, "ema": 0.98}


@contextmanager
def voc(args: argparse.Namespace, seed: int) -> Iterator[tuple[Splits[Any], dict[str, Any]]]:
    splits = voc_splits(args.voc, args.labels, size=args.size)
    yield splits, {**PHOTOGRAPHS, "weights": str(args.weights), "size": args.size, "epochs": args.epochs}


@contextmanager
def photographs(folder: Path, weights: Path, seed: int) -> Iterator[tuple[Splits[Any], dict[str, Any]]]:
    found = load_dataset(folder / "data.csv", root=folder / "original", complete=True, validation=0).train
    found = replace(found, observed=drop_labels(Labels.from_true(found.true, found.class_names), seed=seed))
    rows = len(found)
    parts = np.split(np.random.RandomState(seed).permutation(rows), [int(0.6 * rows), int(0.75 * rows)])
    yield (
        Splits("photographs", *(found.take(np.sort(part)) for part in parts)),
        {**PHOTOGRAPHS, "weights": str(weights)},
    )


def task(args: argparse.Namespace, seed: int) -> Any:
    if args.photographs:
        return photographs(args.photographs, args.weights, seed)
    return voc(args, seed) if args.voc else digits(seed)


def measure(data: Splits[Any], name: str, draw: str, settings: dict[str, Any]) -> list[float]:
    part = data.train
    if name == "full labels":
        data = replace(data, train=replace(part, observed=Labels.from_true(part.true, part.class_names)))
    elif draw != "uniform":
        data = replace(data, train=replace(part, observed=observe(part, draw)))
    if name.endswith("held out too"):
        data = replace(data, validation=replace(data.validation, true=None))
    began = time.perf_counter()
    run = train(data, **settings, **ROWS[name])
    scores = [run.result["plain"]["test_mAP"], run.result["ema"]["test_mAP"], run.result["validation_mAP"]]
    return [*scores, time.perf_counter() - began]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--draws", default="uniform")
    parser.add_argument("--rows", default="", help="names of rows, separated by ';'")
    parser.add_argument("--mode", default="finetune", choices=["finetune", "linearinit"])
    parser.add_argument("--photographs", type=Path, help="a folder with data.csv and original/")
    parser.add_argument("--voc", type=Path, help="a folder of shards of VOC 2012's pictures")
    parser.add_argument("--labels", type=Path, help="VOC's labels.npz")
    parser.add_argument("--size", type=int, default=128, help="of VOC's pictures")
    parser.add_argument("--epochs", type=int, default=5, help="of VOC's, the teacher's as the student's")
    parser.add_argument("--weights", type=Path, help="ResNet-50's, for the photographs and VOC")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    names = [name.strip() for name in args.rows.split(";") if name.strip()] or list(ROWS)
    found: dict[str, dict[str, list[float]]] = {}
    if args.json and args.json.is_file():
        found = json.loads(args.json.read_text())
    for seed in range(args.seeds):
        with task(args, seed) as (data, common):
            for draw, name in itertools.product(args.draws.split(","), names):
                row = found.setdefault(f"{draw} {name}", {key: [] for key in KEYS})
                if len(row["plain"]) > seed:
                    continue
                values = measure(data, name, draw, {**common, "mode": args.mode, "seed": seed})
                told = "{:.2f}  averaged {:.2f}  validation {:.2f}  {:.0f} s".format(*values)
                print(f"{draw:10s} seed {seed}  {name:44s} {told}", flush=True)
                for key, value in zip(KEYS, values, strict=True):
                    row[key].append(round(value, 3))
                if args.json:
                    atomic_write(args.json, json.dumps(found, indent=1) + "\n")
    print(f"\n{'test mAP, mean and deviation over seeds':60s} plain          averaged       validation  seconds")
    for name, row in found.items():
        cells = [
            f"{np.mean(row[k]):.2f} ± {np.std(row[k], ddof=1) if len(row[k]) > 1 else 0:.2f}"
            for k in ("plain", "averaged")
        ]
        more = f"{np.mean(row['validation']):10.2f} {np.mean(row['seconds']):8.0f}"
        print(f"{name:60s} {cells[0]:14s} {cells[1]:14s} {more}")


if __name__ == "__main__":
    main()
