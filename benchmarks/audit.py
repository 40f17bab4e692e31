"""Audit estimators in simulation: bias, and how often 95% intervals hold the truth, over repeated draws of the plan.

    python benchmarks/audit.py                       # VOC and three made-up tasks, both rules, 50 to 800 audited rows
    python benchmarks/audit.py --cases longtail --rules 0.9 --rows 200 --repeats 1000 --out /tmp
    python benchmarks/audit.py --table               # the tables, from the files

The intervals of an earlier commit: `git archive COMMIT src | tar -x -C DIR`, then `PYTHONPATH=DIR/src python …`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _recovery_cases import CASES

from onelabel.labels import Labels, drop_labels
from onelabel.probes import ProbeSpec
from onelabel.recovery import audit as planning
from onelabel.recovery import crossfit, estimate_audit, plan_audit, recover
from onelabel.recovery import estimate as estimating

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


def simulate(file: Any, Y: np.ndarray, Z: np.ndarray, rows: int, repeats: int) -> dict[str, Any]:
    """Bias, coverage and mean width over draws of the plan."""
    overall, classes = truths(file, Y, Z)
    whole = {name: np.zeros((repeats, 3)) for name in overall}
    each = {name: np.zeros((repeats, Y.shape[1], 3)) for name in NAMES}
    for seed in range(repeats):
        plan = plan_audit(file, rows=rows, seed=seed)
        answers = np.where(Y[plan.rows] > 0, 1, -1).astype(np.int8)
        found = estimate_audit(file, plan, answers)
        for name in overall:
            e = found.overall[name]
            whole[name][seed] = e.value, e.low, e.high
        for name in NAMES:
            each[name][seed] = [[getattr(e[name], k) for k in ("value", "low", "high")] for e in found.classes.values()]
    added = (file.labels().to_dense() > 0) & (Z == 0)
    report: dict[str, Any] = {"rows": rows, "repeats": repeats, "strata": len(plan.sizes), "overall": {}}
    report |= {"added": int(added.sum()), "added_wrong": int((added & (Y == 0)).sum())}
    for name, true in overall.items():
        v, low, high = whole[name].T
        error = v.std(ddof=1) / np.sqrt(repeats)
        report["overall"][name] = {
            "true": true,
            "mean": v.mean(),
            "standard_error": error,
            "bias_in_standard_errors": (v.mean() - true) / max(error, 1e-12),
            "coverage": np.mean((low - 1e-9 <= true) & (true <= high + 1e-9)),
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


def few() -> tuple[np.ndarray, np.ndarray]:
    """1,200 rows of six classes with held-out scores so noisy that few labels are added: the tests' case."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((1200, 6)) * 2 - np.linspace(1, 3.5, 6)
    y = rng.random(z.shape) < 1 / (1 + np.exp(-z))
    y[np.arange(1200), rng.integers(6, size=1200)] |= ~y.any(1)
    return (z + rng.standard_normal(z.shape)).astype(np.float32), y.astype(np.uint8)


def measure(case: str, rules: Sequence[str], sizes: Sequence[int], repeats: int) -> list[dict[str, Any]]:
    """A line for each rule and number of audited rows. What is the same in every draw is read once."""
    X, Y = few() if case == "few" else CASES[case]()
    labels, scores, results = drop_labels(Y, seed=0), X, []
    if case != "few":
        scores = crossfit(X, labels, spec=ProbeSpec("em", lr=1e-3, batch_size=128, epochs=12), progress=False)
    named, read_profile, read = Labels.from_matrix(labels.to_dense()), planning._profile, estimating.read_audited
    for rule in rules:
        with tempfile.TemporaryDirectory() as temporary:
            target, precision = Path(temporary) / "recovered.parquet", None if rule == "f1" else float(rule)
            file = recover(None, named, target, scores=scores, precision=precision, show=False).file
            profile, whole = read_profile(file), read(file, np.arange(len(Y)))
            planning._profile = lambda _, known=profile: known
            estimating.read_audited = lambda _, rows, known=whole: replace(
                known, **{name: getattr(known, name)[rows] for name in ("x", "kept", "added", "seen")}
            )
            for rows in sizes:
                line = {"rule": rule, **simulate(file, Y, labels.to_dense(), rows, repeats)}
                print(
                    case,
                    rule,
                    rows,
                    {n: round(float(e["coverage"]), 3) for n, e in line["overall"].items()},
                    flush=True,
                )
                results.append(rounded(line))
    planning._profile, estimating.read_audited = read_profile, read
    return results


def tables(folder: Path, cases: Sequence[str]) -> list[str]:
    """From the files: coverage and width of the overall numbers, then of the classes' by bins of frequency (f1)."""
    lines, below = [], []
    for case in cases:
        for line in json.loads((folder / f"recovery-audit-{case}.json").read_text()):
            cells = [f"{e['coverage']:.3f}, {e['width']:.3f}" for e in (line["overall"][n] for n in NAMES[1:])]
            k = line["overall"]["k"]
            added = f"{line['added']:,} ({line['added_wrong']:,})"
            said = [case, line["rule"], added, str(line["rows"]), f"{k['coverage']:.3f}, {k['width']:.3f}", *cells]
            lines.append(f"| {' | '.join(said)} |")
            for bin_, e in line["classes"]["count"].items():
                of = [line["classes"][n].get(bin_) for n in NAMES if n != "added_precision"]
                told = " | ".join(f"{each['coverage']:.3f}, {each['width']:.2f}" for each in of if each)
                below.append(f"| {case} {line['rule']}, {bin_} ({e['classes']} classes) | {line['rows']} | {told} |")
    return [*lines, "", *below]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--cases", nargs="+", choices=[*sorted(CASES), "few"], default=["voc", "digits", "longtail", "few"]
    )
    parser.add_argument("--rules", nargs="+", default=["0.9", "f1"], help="expected precision of added labels, or f1")
    parser.add_argument("--rows", type=int, nargs="+", default=[50, 200, 800])
    parser.add_argument("--repeats", type=int, default=300)
    parser.add_argument("--table", action="store_true", help="print the tables from the files of --out")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.table:
        print("\n".join(tables(given.out, given.cases)))
        raise SystemExit
    given.out.mkdir(parents=True, exist_ok=True)
    for case in given.cases:
        found = measure(case, given.rules, given.rows, given.repeats)
        (given.out / f"recovery-audit-{case}.json").write_text(json.dumps(found, indent=1) + "\n")
