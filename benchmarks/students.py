"""What a linear head's student is worth, and of that what the other classes say, on others' data.

    python benchmarks/students.py --mulan mulan/data/multi-label [--scenes DIR --weights FILE] [--only yeast,scene]
                                  [--methods roll-call,em] [--draws 2] [--json FILE]

Data and parts of `elsewhere.py`, whose 15% of held-out rows have their true labels here. A method is trained as
`onelabel train --mode linear` does it, one label a row drawn evenly and with common classes first, and either stops
there, or teaches a student class by class, or one that is also told what other classes say. A file that is there is
gone on with.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from elsewhere import LEAST, MULAN, mulan, photographs, scaled

from onelabel.data import FeatureDataset, Splits
from onelabel.labels import Labels, drop_labels
from onelabel.system import atomic_write
from onelabel.training import train

STUDENTS: dict[str, dict[str, Any]] = {
    "alone": {"student": "off"},
    "student, each class by itself": {"student": "on", "student_context": "off"},
    "student": {"student": "on"},
}
DRAWS: dict[str, dict[str, Any]] = {"even": {}, "common first": {"scheme": "frequency", "bias": 1.0}}


def splits_of(X: np.ndarray, Y: np.ndarray, draw: str, seed: int) -> Splits[Any]:
    Y = Y[:, Y.sum(0) >= LEAST]
    X, Y = X[Y.any(1)], Y[Y.any(1)]
    names = tuple(f"c{i}" for i in range(Y.shape[1]))
    rows = np.split(np.random.RandomState(0).permutation(len(Y)), [int(0.6 * len(Y)), int(0.75 * len(Y))])
    observed = [drop_labels(Y[rows[0]], seed=seed, **DRAWS[draw]), *(Labels.from_true(Y[part]) for part in rows[1:])]
    parts = zip(("train", "validation", "test"), rows, observed, strict=True)
    return Splits("others", *(FeatureDataset(name, names, X[at], seen, Y[at]) for name, at, seen in parts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mulan", type=Path, required=True)
    parser.add_argument("--scenes", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--only", default="", help="tasks, separated by commas")
    parser.add_argument("--methods", default="roll-call,em", help="separated by commas")
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    os.environ.setdefault("ONELABEL_QUIET", "1")
    found: dict[str, Any] = json.loads(args.json.read_text()) if args.json and args.json.is_file() else {}
    tasks = args.only.split(",") if args.only else [*(["photographs"] if args.scenes else []), *MULAN]
    for task in (task for task in tasks if task not in found):
        X, Y = photographs(args.scenes, args.weights) if task == "photographs" else mulan(args.mulan, task)
        X = scaled(X)
        found[task] = {}
        for draw, method in itertools.product(DRAWS, args.methods.split(",")):
            row: dict[str, list[float]] = {name: [] for name in STUDENTS}
            found[task][f"{method}, {draw}"] = row
            for seed, (name, how) in itertools.product(range(args.draws), STUDENTS.items()):
                run = train(splits_of(X, Y, draw, seed), method=method, mode="linear", seed=seed, **how)
                row[name].append(round(run.result["test_mAP"], 2))
            told = "  ".join(f"{name} {np.mean(values):.2f}" for name, values in row.items())
            print(f"{task:12s} {draw:12s} {method:9s} {told}", flush=True)
        if args.json:
            atomic_write(args.json, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
