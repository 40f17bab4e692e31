"""Audit estimators in simulation: bias, and how often 95% intervals hold the truth, over repeated draws of the plan.

    python benchmarks/audit.py                       # VOC, digits-scenes, 100 long-tailed classes; 50 to 800 rows
    python benchmarks/audit.py --cases longtail --rows 200 --repeats 1000 --out /tmp

The intervals of an earlier commit: `git archive COMMIT src | tar -x -C DIR`, then `PYTHONPATH=DIR/src python …`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _recovery_cases import CASES

from onelabel.labels import Labels, drop_labels
from onelabel.probes import ProbeSpec
from onelabel.recovery import audit as planning
from onelabel.recovery import crossfit, estimate_audit, plan_audit, recover

NAMES = ("count", "precision", "recall", "f1", "added_precision", "missing_rate")
#: Classes by the share of rows that have them.
BINS = ((0.0, 0.003), (0.003, 0.01), (0.01, 0.05), (0.05, 1.0))


def truths(file: Any, Y: np.ndarray, Z: np.ndarray) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """What the audit estimates, known here: overall, and by class."""
    done, y, seen = file.labels().to_dense() > 0, Y > 0, Z > 0
    added = done & ~seen

    def of(total: Any) -> dict[str, Any]:
        hit = total(y & done)
        with np.errstate(invalid="ignore"):
            return {
                "count": total(y) * 1.0,
                "precision": hit / total(done),
                "recall": hit / total(y),
                "f1": 2 * hit / (total(done) + total(y)),
                "added_precision": total(y & added) / total(added),
                "missing_rate": total(y & ~seen) / total(y),
            }

    overall = {name: float(v) for name, v in of(np.sum).items()}
    return overall | {"k": float(Y.sum(1).mean())}, of(lambda m: m.sum(0))


def simulate(file: Any, Y: np.ndarray, Z: np.ndarray, rows: int, repeats: int, intervals: Any) -> dict[str, Any]:
    """Bias, coverage and mean width over draws of the plan."""
    overall, classes = truths(file, Y, Z)
    whole = {name: np.zeros((repeats, 3)) for name in overall}
    each = {name: np.zeros((repeats, Y.shape[1], 3)) for name in NAMES}
    for seed in range(repeats):
        plan = plan_audit(file, rows=rows, seed=seed)
        answers = np.where(Y[plan.rows] > 0, 1, -1).astype(np.int8)
        found = estimate_audit(file, plan, answers, intervals=intervals, repeats=500)
        for name in overall:
            e = found.overall[name]
            whole[name][seed] = e.value, e.low, e.high
        for name in NAMES:
            each[name][seed] = [[getattr(e[name], k) for k in ("value", "low", "high")] for e in found.classes.values()]
    report: dict[str, Any] = {"rows": rows, "repeats": repeats, "intervals": intervals, "strata": len(plan.sizes)}
    report["overall"] = {}
    for name, true in overall.items():
        v, low, high = whole[name].T
        error = v.std(ddof=1) / np.sqrt(repeats)
        report["overall"][name] = {
            "true": true,
            "mean": v.mean(),
            "standard_error": error,
            "bias_in_standard_errors": (v.mean() - true) / max(error, 1e-12),
            "coverage": np.mean((low <= true) & (true <= high)),
            "width": np.mean(high - low),
        }
    v = each["count"][:, :, 0]
    error = v.std(0, ddof=1) / np.sqrt(repeats)
    z = (v.mean(0) - classes["count"])[error > 0] / error[error > 0]
    report["class_counts_bias"] = {"rms_in_standard_errors": np.sqrt(np.mean(z**2)), "largest": np.abs(z).max()}
    share, report["classes"] = Y.mean(0), {}
    for name in NAMES:
        low, high = each[name][:, :, 1], each[name][:, :, 2]
        inside = (low - 1e-9 <= classes[name]) & (classes[name] <= high + 1e-9)
        width = (high - low) / (np.maximum(classes["count"], 1) if name == "count" else 1)
        report["classes"][name] = {}
        for start, stop in BINS:
            mine = (share >= start) & (share < stop) & np.isfinite(classes[name])
            if mine.any():
                report["classes"][name][f"{start:g}-{stop:g}"] = {
                    "classes": int(mine.sum()),
                    "coverage": inside[:, mine].mean(),
                    "lowest": inside[:, mine].mean(0).min(),
                    "width": np.nanmean(width[:, mine]),
                }
    return report


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return round(float(value), 5) if isinstance(value, float) else value


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=sorted(CASES), default=["voc", "digits", "longtail"])
    parser.add_argument("--rows", type=int, nargs="+", default=[50, 100, 200, 400, 800])
    parser.add_argument("--repeats", type=int, default=400)
    parser.add_argument("--intervals", choices=["linear", "bootstrap"], default="linear")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    read_profile = planning._profile
    given.out.mkdir(parents=True, exist_ok=True)
    for case in given.cases:
        X, Y = CASES[case]()
        labels = drop_labels(Y, seed=0)
        scores = crossfit(X, labels, spec=ProbeSpec("em", lr=1e-3, batch_size=128, epochs=12), progress=False)
        results = []
        with tempfile.TemporaryDirectory() as temporary:
            named = Labels.from_matrix(labels.to_dense())
            file = recover(
                None, named, Path(temporary) / "recovered.parquet", scores=scores, precision=None, show=False
            ).file
            profile = read_profile(file)
            planning._profile = lambda _, known=profile: known  # read once: it is the same in every draw
            for rows in given.rows:
                results.append(rounded(simulate(file, Y, labels.to_dense(), rows, given.repeats, given.intervals)))
                short = {n: [b["coverage"] for b in results[-1]["classes"][n].values()] for n in NAMES}
                print(case, rows, json.dumps(short), results[-1]["class_counts_bias"], flush=True)
        name = f"recovery-audit-{case}{'' if given.intervals == 'linear' else '-bootstrap'}.json"
        (given.out / name).write_text(json.dumps(results, indent=1) + "\n")
