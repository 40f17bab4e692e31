"""Regret of choosing: test mAP of the best pick minus that of each criterion's pick.

    python benchmarks/selection.py --epochs 12             # writes docs/results/selection.csv and prints the table
    python benchmarks/selection.py --epochs 12 --draw 7 --only ink --out ink-7.csv     # other labels drawn

On VOC 2012 features with labels dropped uniformly and with two biases, on features of digits-scenes, and on six
made-up tasks. A criterion picks for every probe its epoch and then, by the mean over seeds, the setting. The best pick
is made with the test set itself, so even clean validation regrets a little.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onelabel.labels import Labels, drop_labels
from onelabel.probes import fit_probes, grid
from onelabel.probes.results import behind
from onelabel.probes.role_table import format_rows, load_voc_features, write_rows

HERE = Path(__file__).resolve().parents[1]
METHODS: dict[str, dict[str, Any]] = {
    "an": {},
    "an-ls": {},
    "wan": {},
    "em": {"alpha": [0.02, 0.1, 0.2, 0.4]},
    "gr": {"w": [2.0, 10.0]},
    "focal": {},
    "asl": {},
    "hill": {},
    "splc": {},
    "epr": {},
    "role": {},
    "ll-r": {},
    "ll-ct": {},
    "entmin": {},
    "roll-call": {"alpha": [0.05, 0.1, 0.2], "naming": [0.0, 0.5, 1.0]},
}
AUDITS = (25, 50, 100, 200)
#: The draw of ../shared's VOC labels, and of the digits' own.
PUBLISHED = 1200


@dataclass
class Case:
    name: str
    X: Any
    observed: Labels
    Xv: Any
    held: Labels
    true: Any
    Xt: Any
    test: Any


def voc_cases(folder: Path, draw: int) -> list[Case]:
    data = load_voc_features(folder)
    n = len(data.train[1])
    true = np.concatenate([data.train[1], data.validation[1]])
    cases = []
    for name, drop in {
        "VOC uniform": {},
        "VOC frequent first": {"scheme": "frequency", "bias": 1.0},
        "VOC rare first": {"scheme": "frequency", "bias": -1.0},
    }.items():
        if not drop and draw == PUBLISHED:
            observed, held = data.observed, data.held
        else:
            drawn = drop_labels(true, seed=draw, **drop)
            observed, held = drawn.take(np.arange(n)), drawn.take(np.arange(n, len(true)))
        cases.append(Case(name, data.train[0], observed, data.validation[0], held, data.validation[1], *data.test))
    return cases


def digits_case(draw: int = PUBLISHED) -> Case:
    """digits-scenes seen through random patches (Coates and Ng): whitened 8×8 patches of training scenes as filters."""
    from onelabel.data import load_dataset

    splits = load_dataset("digits-scenes", size=48)
    parts = [splits.train, splits.validation, splits.test]
    grey = [np.stack([p.source.read(i).mean(2) for i in range(len(p))]).astype(np.float32) / 255 for p in parts]
    rng = np.random.default_rng(0)
    side, filters = 8, 400

    def patches(images: np.ndarray, count: int) -> torch.Tensor:
        rows = rng.integers(len(images), size=count)
        top, left = rng.integers(images.shape[1] - side, size=(2, count))
        found = np.stack(
            [images[r, t : t + side, c : c + side].ravel() for r, t, c in zip(rows, top, left, strict=True)]
        )
        return torch.from_numpy(found)

    many = patches(grey[0], 20_000)
    many = (many - many.mean(1, keepdim=True)) / many.std(1, keepdim=True).clamp(min=0.05)
    centre = many.mean(0)
    values, vectors = torch.linalg.eigh(torch.cov((many - centre).T))
    whiten = vectors @ torch.diag((values + 0.1).rsqrt()) @ vectors.T
    bank = (many[:filters] - centre) @ whiten
    bank = bank / bank.norm(dim=1, keepdim=True)

    def features(images: np.ndarray) -> np.ndarray:
        out = []
        for chunk in torch.from_numpy(images).split(50):
            p = torch.nn.functional.unfold(chunk[:, None], side, stride=2).transpose(1, 2)
            p = (p - p.mean(2, keepdim=True)) / p.std(2, keepdim=True).clamp(min=0.05)
            a = torch.relu((p - centre) @ whiten @ bank.T - 1.0)
            out.append(torch.cat([a.amax(1), a.mean(1) * 5], 1))
        return torch.cat(out).numpy()

    X, Xv, Xt = (features(images) for images in grey)
    scale = X.std(0) + 1e-3
    X, Xv, Xt = X / scale, Xv / scale, Xt / scale
    train, validation, test = parts
    observed, held = train.observed, validation.observed
    if draw != PUBLISHED:
        observed, held = drop_labels(train.true, seed=draw), drop_labels(validation.true, seed=draw + 1)
    return Case("digits-scenes", X, observed, Xv, held, validation.true, Xt, test.true)


def made_cases(draw: int) -> list[Case]:
    """Made-up datasets of `_recovery_cases.py`, one uniform draw each: 60% of the rows to train on, 20% held out."""
    from _recovery_cases import CASES

    cases = []
    for name in ("latent", "sklearn", "ink", "longtail", "rooms", "attributes"):
        X, Y = CASES[name]()
        order = np.random.default_rng(0).permutation(len(Y))
        train, held, test = np.split(order, [6 * len(Y) // 10, 8 * len(Y) // 10])
        drawn = drop_labels(Y, seed=draw)
        cases.append(Case(name, X[train], drawn.take(train), X[held], drawn.take(held), Y[held], X[test], Y[test]))
    return cases


def regrets(case: Case, args: argparse.Namespace) -> list[dict[str, Any]]:
    specs = grid(METHODS, lr=[1e-2, 1e-3, 1e-4], batch_size=32, seeds=range(args.seeds), epochs=args.epochs)
    monitors: dict[str, Any] = {
        "test": (case.Xt, case.test),
        "clean validation": (case.Xv, case.true),
        "observed-map": (case.Xv, case.held, "observed-map"),
        "likelihood": (case.Xv, case.held, "likelihood"),
        "positive-rank": (case.Xv, case.held, "positive-rank"),
        "pu-f1": (case.Xv, case.held, "pu-f1"),
        "pu-f1-log": (case.Xv, case.held, "pu-f1-log"),
    }
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(case.true))
    for n in AUDITS:
        monitors[f"audit of {n}"] = (case.Xv[rows[:n]], case.true[rows[:n]])
    start = time.perf_counter()
    # Without validation= the weights kept are the last epoch's, which is what agreement looks at.
    results = fit_probes(case.X, case.observed, specs, monitors=monitors, device=args.device)
    seconds = time.perf_counter() - start
    cells: dict[Any, list[int]] = {}
    for i, spec in enumerate(specs):
        cells.setdefault(spec.cell, []).append(i)
    members = list(cells.values())
    test = np.nan_to_num(results.history["test"], nan=0.0)
    every = np.arange(len(specs))
    oracle = np.array([test[m].max(1).mean() for m in members])
    lines = []

    def add(name: str, cell: int, epoch: np.ndarray) -> None:
        value = test[members[cell], epoch[members[cell]]].mean()
        line = {"data": case.name, "criterion": name, "pick": str(specs[members[cell][0]])}
        line["test_mAP"] = round(100 * float(value), 2)
        line["regret"] = round(100 * float(oracle.max() - value), 2)
        lines.append(line)

    def over_seeds(values: np.ndarray) -> np.ndarray:
        return np.array([values[m].mean() for m in members])

    for name in list(monitors)[1:]:
        history = np.nan_to_num(results.history[name], nan=-np.inf)
        epoch = history.argmax(1)
        values = over_seeds(history[every, epoch])
        add(name, int(np.argmax(values)), epoch)
        if name == "likelihood":  # as `choose` does
            names = over_seeds(results.history["observed-map"][every, epoch])
            add("likelihood with the floor", int(np.argmax(np.where(behind(names, values), -np.inf, values))), epoch)
    last = np.full(len(specs), args.epochs - 1)
    alike = results.agreement(case.Xv)
    add("agreement of seeds", int(np.argmax([alike[specs[m[0]].cell] for m in members])), last)
    average = np.mean([test[m, -1].mean() for m in members])
    lines.append(
        {
            "data": case.name,
            "criterion": "any setting (mean of the grid)",
            "pick": "",
            "test_mAP": round(100 * float(average), 2),
            "regret": round(100 * float(oracle.max() - average), 2),
        }
    )
    best = int(oracle.argmax())
    top = {"data": case.name, "criterion": "best pick (test itself)", "pick": str(specs[members[best][0]])}
    lines.append({**top, "test_mAP": round(100 * float(oracle.max()), 2), "regret": 0.0})
    print(f"{case.name}: {len(specs)} probes in {seconds:.0f} s", flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE.parent / "shared" / "data" / "voc2012")
    parser.add_argument("--device", default=None)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--draw", type=int, default=PUBLISHED, help="seed of the label of each row that is kept")
    parser.add_argument("--only", default="", help="part of a case's name")
    parser.add_argument("--out", type=Path, default=HERE / "docs" / "results" / "selection.csv")
    args = parser.parse_args()
    cases = [*voc_cases(args.data, args.draw), digits_case(args.draw), *made_cases(args.draw)]
    lines = [line for case in cases if args.only in case.name for line in regrets(case, args)]
    write_rows(lines, args.out)
    print(format_rows(lines))
    names = list(dict.fromkeys(line["criterion"] for line in lines))
    mean = [
        {"criterion": n, "mean regret": round(float(np.mean([x["regret"] for x in lines if x["criterion"] == n])), 2)}
        for n in names
    ]
    print(format_rows(sorted(mean, key=lambda row: row["mean regret"])))


if __name__ == "__main__":
    main()
