"""What `recover` adds from few rows, as it believes and in truth: rules, numbers of rows, datasets.

    python benchmarks/recovery_small.py                                        # VOC's features
    python benchmarks/recovery_small.py --cases digits latent sklearn ink longtail --rows 300 1000

A draw is a random part of the rows with one label each, drawn fairly; the default probe, cross-fitted; sums over draws.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from _recovery_cases import CASES

from onelabel.labels import drop_labels
from onelabel.recovery import crossfit, recover
from onelabel.recovery.summary import added

RULES = {"0.9": 0.9, "0.8": 0.8, "f1": None}


def measure(case: str, rows: int, seeds: int) -> list[str]:
    """A line of the table for each rule."""
    X, Y = CASES[case]()
    found: dict[str, list[list[float]]] = defaultdict(list)
    for seed in range(seeds):
        part = np.sort(np.random.default_rng(seed).permutation(len(X))[:rows])
        true, labels = Y[part] > 0, drop_labels(Y[part], seed=seed)
        unknown = labels.to_dense() == 0
        scores = crossfit(X[part], labels, spec="em", progress=False)
        for name, precision in RULES.items():
            with tempfile.TemporaryDirectory() as folder:
                target = Path(folder) / "recovered.parquet"
                done = recover(None, labels, target, scores=scores, precision=precision, show=False)
                called, told = (done.labels().to_dense() > 0) & unknown, added(done.summary)
            hits = (called & true).sum()
            believed = [told.labels * (value or 0.0) for value in (told.precision, told.low, told.high)]
            held = told.labels > 0 and (told.low or 0) * told.labels <= hits <= (told.high or 0) * told.labels
            found[name].append(
                [called.sum(), *believed, hits, (true & unknown).sum(), done.k, true.sum(1).mean(), held]
            )
    lines = []
    for name, draws in found.items():
        labels_, *believed, hits, missing, k, true_k, held = np.array(draws, np.float64).sum(0)
        share, low, high = (f"{value / labels_:.2f}" if labels_ else "–" for value in believed)
        right = f"{hits / labels_:.2f}" if labels_ else "–"
        kinds = f"{case} | {rows:,} | {k / seeds:.2f} ({true_k / seeds:.2f}) | {name}"
        told = (
            f"{labels_ / seeds:,.0f} | {share} ({low}–{high}) | {right} | {hits / missing:.2f} | {held:.0f} of {seeds}"
        )
        lines.append(f"| {kinds} | {told} |")
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=sorted(CASES), default=["voc"])
    parser.add_argument("--rows", nargs="+", type=int, default=[300, 1000, 4574])
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("| data | rows | k (true) | rule | added | believed right (95%) | right | recall | interval holds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for case in given.cases:
        for rows in given.rows:
            print("\n".join(measure(case, rows, given.seeds)), flush=True)
