"""What a linear head's student is worth, and of that what the other classes say, on others' data.

    python benchmarks/students.py --mulan mulan/data/multi-label [--scenes DIR --weights FILE] [--only yeast,scene]
                                  [--methods roll-call,em] [--draws 2] [--json FILE]

Data and parts of `elsewhere.py`, whose 15% of held-out rows have their true labels here. A method is trained as
`onelabel train --mode linear` does it, one label a row drawn evenly and with common classes first, and either stops
there, or teaches a student class by class, or one that is also told what other classes say. A file that is there is
gone on with.
"""

from __future__ import annotations

import itertools
import json
import os
from typing import Any

import numpy as np
from elsewhere import arguments, parted, sets

from onelabel.data import FeatureDataset, Splits
from onelabel.labels import Labels, drop_labels
from onelabel.system import atomic_write
from onelabel.training import train

STUDENTS: dict[str, dict[str, Any]] = {
    "alone": {"student": "off"},
    "student, each class by itself": {"student": "on", "student_annotators": "off", "student_context": "off"},
    "student, annotators not told": {"student": "on", "student_annotators": "off"},
    "student": {"student": "on"},
}
DRAWS: dict[str, dict[str, Any]] = {"even": {}, "common first": {"scheme": "frequency", "bias": 1.0}}


def splits_of(X: np.ndarray, Y: np.ndarray, draw: str, seed: int) -> Splits[Any]:
    X, Y, rows = parted(X, Y)
    names = tuple(f"c{i}" for i in range(Y.shape[1]))
    observed = [drop_labels(Y[rows[0]], seed=seed, **DRAWS[draw]), *(Labels.from_true(Y[part]) for part in rows[1:])]
    parts = zip(("train", "validation", "test"), rows, observed, strict=True)
    return Splits("others", *(FeatureDataset(name, names, X[at], seen, Y[at]) for name, at, seen in parts))


def main() -> None:
    parser = arguments(__doc__, draws=2)
    parser.add_argument("--methods", default="roll-call,em", help="separated by commas")
    args = parser.parse_args()
    os.environ.setdefault("ONELABEL_QUIET", "1")
    found: dict[str, Any] = json.loads(args.json.read_text()) if args.json and args.json.is_file() else {}
    for task, X, Y in sets(args, done=tuple(found)):
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
