"""What `recover` adds from few rows, as it believes and in truth: rules, numbers of rows, datasets.

    python benchmarks/recovery_small.py                                        # VOC's features
    python benchmarks/recovery_small.py --cases digits latent sklearn ink longtail --rows 300 1000
    python benchmarks/recovery_small.py --rows 300 --why     # labels added by f1: at the true k; where o itself is sure

A draw is a random part of the rows with one label each, drawn fairly; the default probe, cross-fitted; sums over draws.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from _recovery_cases import CASES

from onelabel.labels import Labels, drop_labels
from onelabel.losses.calibrate import fit_calibration
from onelabel.losses.sample import draw_sample
from onelabel.recovery import crossfit, recover
from onelabel.recovery.folds import CrossFit
from onelabel.recovery.summary import added
from onelabel.recovery.thresholds import Histogram, choose_thresholds

Drawn = tuple[np.ndarray, Labels, CrossFit]
RULES = {"0.9": 0.9, "0.8": 0.8, "f1": None}


def draws(case: str, rows: int, seeds: int) -> Iterator[Drawn]:
    """True labels, observed ones and cross-fitted scores of some rows."""
    X, Y = CASES[case]()
    for seed in range(seeds):
        part = np.sort(np.random.default_rng(seed).permutation(len(X))[:rows])
        labels = drop_labels(Y[part], seed=seed)
        yield Y[part] > 0, labels, crossfit(X[part], labels, spec="em", progress=False)


def why(case: str, rows: int, seeds: int) -> list[str]:
    """Believed and true precision of what f1 adds: all, with k held at the truth, and by how sure o was without it."""
    sums: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(3))
    for true, labels, scores in draws(case, rows, seeds):
        z, s = labels.to_dense(), scores.rows(np.arange(rows)).astype(np.float64)
        sample = draw_sample(scores, labels)
        for name, k in (("k estimated", None), ("k true", float(true.sum(1).mean()))):
            fitted = fit_calibration(sample, k=k)
            q, histogram = fitted.posterior(s, z).numpy(), Histogram(z.shape[1])
            histogram.add(q, z == 0)
            called = (q >= choose_thresholds(histogram, floor=0.05).value) & (z == 0)
            alone = fitted.marginal(s).numpy()[z > 0][:, None]
            kinds = {name: called}
            if k is None:
                kinds |= {"P(o | x) ≥ 0.8": called & (alone >= 0.8), "P(o | x) < 0.2": called & (alone < 0.2)}
            for kind, entries in kinds.items():
                sums[kind] += [entries.sum(), q[entries].sum(), true[entries].sum()]
    return [
        f"{case} {rows}: {kind}: {n:.0f} added, {b / n:.2f} believed, {t / n:.2f}" for kind, (n, b, t) in sums.items()
    ]


def measure(case: str, rows: int, seeds: int) -> list[str]:
    """A line of the table for each rule."""
    found: dict[str, list[list[float]]] = defaultdict(list)
    for true, labels, scores in draws(case, rows, seeds):
        unknown = labels.to_dense() == 0
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
    for name, numbers in found.items():
        labels_, *believed, hits, missing, k, true_k, held = np.array(numbers, np.float64).sum(0)
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
    parser.add_argument("--why", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.why:
        print("\n".join(line for case in given.cases for n in given.rows for line in why(case, n, given.seeds)))
        raise SystemExit
    print("| data | rows | k (true) | rule | added | believed right (95%) | right | recall | interval holds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for case in given.cases:
        for rows in given.rows:
            print("\n".join(measure(case, rows, given.seeds)), flush=True)
