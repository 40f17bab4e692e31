"""What `recover` adds from few rows, as it believes and in truth: rules, numbers of rows, datasets.

    python benchmarks/recovery_small.py                                        # VOC's features
    python benchmarks/recovery_small.py --cases digits latent sklearn ink longtail --rows 300 1000
    python benchmarks/recovery_small.py --rows 300 --why --cases voc digits    # what f1 adds: at the true k, where o
                                                                               # itself is sure, with a straight f
    python benchmarks/recovery_small.py --classes --cases voc latent --rows 4000 --seeds 2
    python benchmarks/recovery_small.py --k --cases voc latent sklearn ink digits longtail --rows 300 1000 --seeds 6
    python benchmarks/recovery_small.py --k --rows 300 --methods an an-ls em gr role roll-call

A draw is a random part of the rows with one label each, drawn fairly; the default probe, cross-fitted; sums over draws.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from _recovery_cases import CASES

from onelabel.labels import Labels, drop_labels
from onelabel.losses.calibrate import KNOTS, fit_calibration
from onelabel.losses.sample import draw_sample
from onelabel.recovery import crossfit, recover
from onelabel.recovery.folds import CrossFit
from onelabel.recovery.summary import added
from onelabel.recovery.thresholds import Histogram, choose_thresholds

Drawn = tuple[np.ndarray, Labels, CrossFit]
RULES = {"0.9": 0.9, "0.8": 0.8, "f1": None}


def draws(case: str, rows: int, seeds: int, method: str = "em") -> Iterator[Drawn]:
    """True labels, observed ones and cross-fitted scores of some rows."""
    X, Y = CASES[case]()
    for seed in range(seeds):
        part = np.sort(np.random.default_rng(seed).permutation(len(X))[:rows])
        labels = drop_labels(Y[part], seed=seed)
        yield Y[part] > 0, labels, crossfit(X[part], labels, spec=method, progress=False)


def why(case: str, rows: int, seeds: int) -> list[str]:
    """Believed and true precision of what f1 adds: all, with k held at the truth, and by how sure o was without it."""
    sums: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(3))
    levels: dict[str, float] = defaultdict(float)
    for true, labels, scores in draws(case, rows, seeds):
        z, s = labels.to_dense(), scores.rows(np.arange(rows)).astype(np.float64)
        sample = draw_sample(scores, labels)
        true_k = float(true.sum(1).mean())
        for name, k, knots in (("k estimated", None, KNOTS), ("k true", true_k, KNOTS), ("straight f", None, ())):
            fitted = fit_calibration(sample, k=k, knots=knots)
            q, histogram = fitted.posterior(s, z).numpy(), Histogram(z.shape[1])
            histogram.add(q, z == 0)
            called = (q >= choose_thresholds(histogram, floor=0.05).value) & (z == 0)
            alone = fitted.marginal(s).numpy()[z > 0][:, None]
            kinds = {name: called}
            levels[name] += fitted.k / seeds
            if name == "k estimated":
                kinds |= {"P(o | x) ≥ 0.8": called & (alone >= 0.8), "P(o | x) < 0.2": called & (alone < 0.2)}
            for kind, entries in kinds.items():
                sums[kind] += [entries.sum(), q[entries].sum(), true[entries].sum()]
    lines = []
    for kind, (n, b, t) in sums.items():
        level = f", k {levels[kind]:.2f}" if kind in levels else ""
        lines.append(f"{case} {rows}: {kind}: {n:.0f} added, {b / max(n, 1):.2f} believed, {t / max(n, 1):.2f}{level}")
    return lines


def classes_differ(case: str, rows: int, seeds: int) -> str:
    """How classes part from the one curve that serves all, at the true k, over what chance explains.

    The deviation of the true slopes of y on the log odds f(s) + intercept, and that of Σq/Σy of unknown entries.
    """
    from sklearn.linear_model import LogisticRegression

    slopes, ratios = [], []
    for true, labels, scores in draws(case, rows, seeds):
        z, s = labels.to_dense(), scores.rows(np.arange(len(true))).astype(np.float64)
        fitted = fit_calibration(draw_sample(scores, labels), k=float(true.sum(1).mean()))
        q, logits = fitted.posterior(s, z).numpy(), fitted.logits(s).numpy()
        for c in range(z.shape[1]):
            unknown, missing = z[:, c] == 0, int(true[z[:, c] == 0, c].sum())
            if missing < 20:
                continue
            x, y = logits[:, c : c + 1], true[:, c]
            line = LogisticRegression(C=1e6).fit(x, y)
            p = line.predict_proba(x)[:, 1]
            design = np.column_stack([x[:, 0], np.ones(len(x))])
            error = np.linalg.inv((design * (p * (1 - p))[:, None]).T @ design)[0, 0]
            slopes.append((float(line.coef_[0, 0]), error))
            each = q[unknown, c]
            ratios.append((each.sum() / missing - 1, (each * (1 - each)).sum() / missing**2))
    (slope, by_chance), (off, noise) = np.array(slopes).T, np.array(ratios).T
    deviation = max(slope.var(ddof=1) - by_chance.mean(), 0) ** 0.5
    apart = max((off**2).mean() - noise.mean(), 0) ** 0.5
    told = f"slopes {slope.mean():.2f} ± {deviation:.2f}, missing positives off by {apart:.0%}"
    return f"{case} {rows}: {len(slope)} classes of {seeds} draws: {told}"


def levels_held(case: str, rows: int, seeds: int, method: str) -> str:
    """A line: k, its interval, how often that holds the truth, and how often k is said to be open."""
    found = []
    for true, labels, scores in draws(case, rows, seeds, method):
        with tempfile.TemporaryDirectory() as folder:
            done = recover(None, labels, Path(folder) / "recovered.parquet", scores=scores, show=False)
        (low, high), k = done.k_interval, float(true.sum(1).mean())
        found.append([done.k, low, high, k, low <= k <= high, done.k_open])
    each = np.array(found, np.float64)
    (least, most), (k, low, high, true_k, *_), (held, open_) = (
        np.quantile(each[:, 0], (0, 1)), each.mean(0), each[:, 4:].sum(0),
    )  # fmt: skip
    told = f"{k:.2f} ({least:.2f}–{most:.2f}) | {true_k:.2f} | {low:.2f}–{high:.2f}"
    return f"| {case} | {rows:,} | {method} | {told} | {held:.0f} of {len(each)} | {open_:.0f} |"


def measure(case: str, rows: int, seeds: int, method: str) -> list[str]:
    """A line of the table for each rule."""
    found: dict[str, list[list[float]]] = defaultdict(list)
    for true, labels, scores in draws(case, rows, seeds, method):
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
        kinds = f"{case} | {rows:,} | {method} | {k / seeds:.2f} ({true_k / seeds:.2f}) | {name}"
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
    parser.add_argument("--classes", action="store_true")
    parser.add_argument("--k", action="store_true")
    parser.add_argument("--methods", nargs="+", default=["em"], help="of the probes")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.why:
        print("\n".join(line for case in given.cases for n in given.rows for line in why(case, n, given.seeds)))
        raise SystemExit
    if given.classes:
        for case, rows in itertools.product(given.cases, given.rows):
            print(classes_differ(case, rows, given.seeds), flush=True)
        raise SystemExit
    if given.k:
        print("| data | rows | probe | k, least and most | true | interval, means | holds | said open |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        for case, rows, method in itertools.product(given.cases, given.rows, given.methods):
            print(levels_held(case, rows, given.seeds, method), flush=True)
        raise SystemExit
    print("| data | rows | probe | k (true) | rule | added | believed right (95%) | right | recall | interval holds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for case, rows, method in itertools.product(given.cases, given.rows, given.methods):
        print("\n".join(measure(case, rows, given.seeds, method)), flush=True)
