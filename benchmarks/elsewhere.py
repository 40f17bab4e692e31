"""Methods, and choosing one, on real data that no constant of this project was set by.

    python benchmarks/elsewhere.py --mulan mulan/data/multi-label [--scenes DIR --weights FILE] [--only yeast,scene]
                                   [--json FILE]

Sets of Mulan's collection (github: tsoumakas/mulan, ARFF files with a list of the labels beside them), and 2,000
photographs of landscapes (github: marttsang2/Multi-Label; features of ResNet-50, 224 px). Linear probes on 60% of the
rows with one label each (three even draws); 15% choose learning rate, settings and epoch, by mAP of their true labels
or by the likelihood of one label each; 25% test. Classes of fewer than 20 rows are left out, and rows without a label.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from onelabel.data import features, load_dataset
from onelabel.data.arff import read_arff
from onelabel.labels import Labels, drop_labels
from onelabel.methods import method_info
from onelabel.probes import ProbeResults, fit_probes, grid
from onelabel.probes.results import behind

#: Pictures, sounds, then the rest by size. Of Corel 16k the store has only test parts.
MULAN: dict[str, tuple[str, ...]] = {
    "scene": ("scene/scene-train.arff", "scene/scene-test.arff"),
    "corel5k": ("corel5k/Corel5k-sparse.arff",),
    "corel16k": ("corel16k/Corel16k001-test.arff",),
    "emotions": ("emotions/emotions.arff",),
    "cal500": ("cal500/cal500.arff",),
    "medical": ("medical/medical.arff",),
    "enron": ("enron/enron.arff",),
    "yeast": ("yeast/yeast.arff",),
    "bibtex": ("bibtex/bibtex.arff",),
    # added when roll call's `naming` was there, so not looked at before
    "tmc2007": ("tmc2007/tmc2007-500.arff",),
    "birds": ("birds/birds-train.arff", "birds/birds-test.arff"),
    "genbase": ("genbase/genbase.arff",),
    "foodtruck": ("foodtruck/foodtruck.arff",),
}
#: Settings that validation chooses among, as the papers have them for their datasets; roll call's are its `trials`.
METHODS: dict[str, dict[str, Any]] = {
    "an": {},
    "an-ls": {},
    "wan": {},
    "hill": {},
    "splc": {},
    "las": {},
    "em": {"alpha": [0.01, 0.05, 0.1, 0.2]},
    "gr": {"w": [2.0, 10.0]},
}
RATES = (1e-2, 1e-3, 1e-4)
LEAST = 20


def mulan(folder: Path, task: str) -> tuple[np.ndarray, np.ndarray]:
    parts = [read_arff(folder / part)[:2] for part in MULAN[task]]
    return np.concatenate([X for X, _ in parts]), np.concatenate([Y for _, Y in parts]).astype(np.uint8)


def photographs(folder: Path, weights: Path) -> tuple[np.ndarray, np.ndarray]:
    """Desert, mountains, sea, sunset, trees: data.csv (a column of 0 and 1 each) and original/."""
    found = load_dataset(folder / "data.csv", root=folder / "original", complete=True, validation=0).train
    return np.asarray(features(found, "resnet50", weights=weights, size=224).array), found.true


def scaled(X: np.ndarray) -> np.ndarray:
    """Words: rows of length 1, which leaves rare words small. Measurements: columns of mean 0. Both to deviation 1."""
    if (X == 0).mean() > 0.8:
        X = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-6)
    else:
        X = (X - X.mean(0)) / np.maximum(X.std(0), 1e-6)
    return np.ascontiguousarray(X[:, X.std(0) > 0] / X.std(), np.float32)


def parted(X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Classes with positives enough, rows that have one of them, and which rows train, are held out and test."""
    Y = Y[:, Y.sum(0) >= LEAST]
    X, Y = X[Y.any(1)], Y[Y.any(1)]
    return X, Y, np.split(np.random.RandomState(0).permutation(len(Y)), [int(0.6 * len(Y)), int(0.75 * len(Y))])


def arguments(doc: str | None, draws: int) -> argparse.ArgumentParser:
    """What says which sets to measure, on how many draws, and where to."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mulan", type=Path, required=True)
    parser.add_argument("--scenes", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--only", default="", help="tasks, separated by commas")
    parser.add_argument("--draws", type=int, default=draws)
    parser.add_argument("--json", type=Path)
    return parser


def sets(args: argparse.Namespace, done: Collection[str] = ()) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, X and Y of each set that was asked for and is not `done`."""
    tasks = args.only.split(",") if args.only else [*(["photographs"] if args.scenes else []), *MULAN]
    for task in [task for task in tasks if task not in done]:
        X, Y = photographs(args.scenes, args.weights) if task == "photographs" else mulan(args.mulan, task)
        yield task, scaled(X), Y


def measure(X: np.ndarray, Y: np.ndarray, draws: int, epochs: int) -> dict[str, Any]:
    """Of every method the test mAP of what validation chose, by true labels and by one label each; and over all."""
    X, Y, (train, held, test) = parted(X, Y)
    classes = Y.shape[1]
    k = float(Y[held].sum(1).mean())
    trials = {name: list(values) for name, values in method_info("roll-call").cls.trials(classes).items()}
    asked = {**METHODS, "role": {"expected_positives": [k]}, "roll-call": trials}
    found: dict[str, list[dict[str, float]]] = {}
    begun = time.perf_counter()
    for seed in range(draws):
        single = drop_labels(Y[held], seed=100 + seed)
        specs = grid(asked, lr=RATES, batch_size=32, seeds=[seed], epochs=epochs)
        one = fit_probes(
            X[train],
            drop_labels(Y[train], seed=seed),
            specs,
            monitors={
                "true": (X[held], Y[held]),
                "one": (X[held], single, "likelihood"),
                "names": (X[held], single, "observed-map"),
                "test": (X[test], Y[test]),
            },
        )
        full = fit_probes(
            X[train],
            Labels.from_true(Y[train]),
            grid({"bce": {}}, lr=RATES, batch_size=32, seeds=[seed], epochs=epochs),
            monitors={"true": (X[held], Y[held]), "test": (X[test], Y[test])},
        )
        for name in asked:
            found.setdefault(name, []).append(chosen(one, [spec.method == name for spec in specs]))
        for share in trials["naming"]:
            which = [spec.hyper.get("naming") == share for spec in specs]
            found.setdefault(f"roll-call, naming {share:g}", []).append(chosen(one, which))
        found.setdefault("of all", []).append(chosen(one, [True] * len(specs)))
        found.setdefault("bce", []).append(chosen(full, [True] * len(RATES)))
    settings = {
        name: {key: round(float(np.mean([each[key] for each in runs])), 2) for key in runs[0]}
        | {"std": round(float(np.std([each["true"] for each in runs], ddof=1)), 2)}
        for name, runs in found.items()
    }
    return {"rows": len(train), "columns": X.shape[1], "classes": classes, "k": round(k, 2), "settings": settings,
            "seconds": round(time.perf_counter() - begun)}  # fmt: skip


def chosen(results: ProbeResults, which: list[bool]) -> dict[str, float]:
    """Test mAP at the setting and epoch, of those asked for, that each criterion likes best.

    By one label as `choose` does: each probe at its likeliest epoch, less those that are `behind` in the mAP of the
    names; and by the likelihood alone.
    """
    history = {name: values[which] for name, values in results.history.items()}
    test = history["test"]
    found = {"true": test.ravel()[np.nanargmax(history["true"])]}
    if "one" in history:
        at = np.arange(len(test)), np.nanargmax(history["one"], 1)
        likely, names = history["one"][at], history["names"][at]
        found["one"] = test[at][np.nanargmax(np.where(behind(names, likely), np.nan, likely))]
        found["likelihood"] = test[at][np.nanargmax(likely)]
    return {name: 100 * float(value) for name, value in found.items()}


def main() -> None:
    parser = arguments(__doc__, draws=3)
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()
    found: dict[str, Any] = json.loads(args.json.read_text()) if args.json and args.json.is_file() else {}
    for task, X, Y in sets(args):
        found[task] = of = measure(X, Y, args.draws, args.epochs)
        print(f"{task}: {of['rows']} rows, {of['columns']} columns, {of['classes']} classes, k = {of['k']}, "
              f"{of['seconds']} s")  # fmt: skip
        for name, row in of["settings"].items():
            print(f"  {name:26s}" + "".join(f"  {key} {value:6.2f}" for key, value in row.items()), flush=True)
        if args.json:
            args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
