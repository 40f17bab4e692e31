"""Audit estimators in simulation: bias, and how often 95% intervals hold the truth, over repeated draws of the plan.

python benchmarks/audit.py --voc ../shared/data/voc2012 --repeats 1000 --rows 200
python benchmarks/audit.py --repeats 1000          (synthetic labels)
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onelabel.labels import Labels, drop_labels
from onelabel.recovery import estimate_audit, plan_audit, recover
from onelabel.recovery.folds import crossfit


def synthetic(rows: int = 5000, classes: int = 12, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """True labels, and scores that know them imperfectly."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((rows, classes)) * 2 - np.linspace(1.5, 4.5, classes)
    y = rng.random((rows, classes)) < 1 / (1 + np.exp(-z))
    y[np.arange(rows), rng.integers(classes, size=rows)] |= ~y.any(1)
    return y.astype(np.uint8), (z + 0.7 * rng.standard_normal(z.shape)).astype(np.float32)


def truths(file: Any, Y: np.ndarray, Z: np.ndarray) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """What the audit estimates, known here."""
    done = file.labels().to_dense() > 0
    added = done & (Z == 0)

    def of(i: Any) -> dict[str, float]:
        y, d, a, z = Y[:, i] > 0, done[:, i], added[:, i], Z[:, i] > 0
        hit = float((y & d).sum())
        return {
            "count": float(y.sum()),
            "precision": hit / max(d.sum(), 1),
            "recall": hit / max(y.sum(), 1),
            "f1": 2 * hit / max(d.sum() + y.sum(), 1),
            "added_precision": float((y & a).sum()) / a.sum() if a.any() else float("nan"),
            "missing_rate": float((y & ~z).sum()) / max(y.sum(), 1),
        }

    everything = of(slice(None))
    return everything | {"k": float(Y.sum(1).mean())}, {n: of([i]) for i, n in enumerate(file.class_names)}


def simulate(file: Any, Y: np.ndarray, Z: np.ndarray, rows: int, repeats: int, intervals: Any) -> dict[str, Any]:
    """Bias in standard errors, coverage, and mean width over draws of the plan."""
    overall, classes = truths(file, Y, Z)
    values: dict[str, list[float]] = {name: [] for name in overall}
    inside: dict[str, list[bool]] = {name: [] for name in overall}
    width: dict[str, list[float]] = {name: [] for name in overall}
    by_class: dict[str, list[bool]] = {}
    for seed in range(repeats):
        plan = plan_audit(file, rows=rows, seed=seed)
        answers = np.where(Y[plan.rows] > 0, 1, -1).astype(np.int8)
        found = estimate_audit(file, plan, answers, intervals=intervals, repeats=500)
        for name, true in overall.items():
            e = found.overall[name]
            values[name].append(e.value)
            inside[name].append(e.low <= true <= e.high)
            width[name].append(e.high - e.low)
        for cls, numbers in classes.items():
            e, true = found.classes[cls]["count"], numbers["count"]
            by_class.setdefault(cls, []).append(e.low <= true <= e.high)
    report: dict[str, Any] = {"rows": rows, "repeats": repeats, "intervals": intervals, "strata": len(plan.sizes)}
    for name, true in overall.items():
        v = np.array(values[name])
        error = v.std(ddof=1) / np.sqrt(repeats)
        report[name] = {
            "true": round(true, 4),
            "mean": round(float(v.mean()), 4),
            "bias_in_standard_errors": round(float((v.mean() - true) / max(error, 1e-12)), 2),
            "relative_bias": round(float(v.mean() / true - 1), 5),
            "coverage": round(float(np.mean(inside[name])), 4),
            "width": round(float(np.mean(width[name])), 4),
        }
    each = [float(np.mean(x)) for x in by_class.values()]
    report["class_count_coverage"] = {"mean": round(float(np.mean(each)), 4), "min": min(each), "max": max(each)}
    return report


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--voc", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=[200])
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--intervals", choices=["linear", "bootstrap"], default="linear")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.voc:
        data = np.load(given.voc / "labels.npz", allow_pickle=False)
        packed = np.load(given.voc / "features-resnet50-448.npz", allow_pickle=False)
        X = ((packed["train"].astype(np.float32) / 255) ** 2 * packed["peak"]).astype(np.float32)
        Y, Z = data["train_true"], data["train_observed_uniform1200"]
        scores: Any = crossfit(X, Labels.from_matrix(Z), progress=False)
    else:
        Y, scores = synthetic()
        Z = drop_labels(Y, seed=0).to_dense()
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        target = Path(temporary) / "recovered.parquet"
        file = recover(None, Labels.from_matrix(Z), target, scores=scores, show=False).file
        for rows in given.rows:
            results.append(simulate(file, Y, Z, rows, given.repeats, given.intervals))
            print(json.dumps(results[-1], indent=1), flush=True)
    given.out.mkdir(parents=True, exist_ok=True)
    name = f"recovery-audit-{'voc' if given.voc else 'synthetic'}-{given.intervals}.json"
    (given.out / name).write_text(json.dumps(results, indent=1) + "\n")
