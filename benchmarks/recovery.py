"""Recovery measured: VOC 2012 beside ROLE's Table 2, coverage over label draws, a million rows of a thousand classes.

python benchmarks/recovery.py --voc ../shared/data/voc2012 --table
python benchmarks/recovery.py --coverage 20 --cases voc digits latent sklearn ink
python benchmarks/recovery.py --scale 1000000 1000 --dim 64
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _recovery_cases import CASES, VOC, draws_of, held_out_scores

from onelabel.labels import Labels
from onelabel.metrics import calibration_error, label_recovery_ap
from onelabel.probes import ProbeSpec, fit_probes
from onelabel.recovery import completion, recover
from onelabel.recovery.completion import AuditRows
from onelabel.recovery.folds import ArrayScores, crossfit
from onelabel.recovery.preference import naming_test

PUBLISHED = {"an": 85.8, "an-ls": 86.9, "role": 90.3}
METHODS = ("an", "an-ls", "role", "em", "gr", "roll-call", "auto")


def load(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]]:
    labels = np.load(folder / "labels.npz", allow_pickle=False)
    features = np.load(folder / "features-resnet50-448.npz", allow_pickle=False)
    X = ((features["train"].astype(np.float32) / 255) ** 2 * features["peak"]).astype(np.float32)
    return X, labels["train_true"], labels["train_observed_uniform1200"], [str(c) for c in labels["classes"]]


def quality(done: Any, scores: Any, Y: np.ndarray, Z: np.ndarray) -> dict[str, float]:
    """Against the truth: mAP, ECE of unknown entries, precision and recall of what the automatic threshold adds."""
    unknown = Z == 0
    index = np.arange(len(Y))
    q = done.calibration.posterior(scores.rows(index).astype(np.float64), Z).numpy()
    if done.correction is not None:
        q = np.where(unknown, done.correction.apply(q), q)
    called = (q >= done.thresholds.value) & unknown
    counts = Y.sum(0)
    inside = [s.low <= c <= s.high for s, c in zip(done.summary, counts, strict=True)]
    told = [
        (s.precision_low, s.precision_high, Y[called[:, i], i].mean())
        for i, s in enumerate(done.summary)
        if called[:, i].any() and s.precision is not None
    ]
    return {
        "mAP_scores": 100 * float(label_recovery_ap(scores.rows(index), Y, Z)),
        "mAP_completed": 100 * float(label_recovery_ap(np.where(Z > 0, 1.0, q), Y, Z)),
        "mAP_unknown": 100 * float(label_recovery_ap(q, Y, Z, entries="unknown")),
        "precision": float(Y[called].mean()),
        "precision_expected": float(done.thresholds.expected_hits.sum() / done.thresholds.called.sum()),
        "recall": float(Y[called].sum() / Y[unknown].sum()),
        "ECE": float(calibration_error(q, Y, mask=unknown)),
        "k": done.k,
        "k_true": float(Y.sum(1).mean()),
        "k_covered": float(done.k_interval[0] <= Y.sum(1).mean() <= done.k_interval[1]),
        "counts_covered": float(np.mean(inside)),
        "count_width": float(np.mean([(s.high - s.low) / max(s.expected, 1) for s in done.summary])),
        "precision_covered": float(np.mean([low <= p <= high for low, high, p in told])) if told else float("nan"),
    }


def table(folder: Path, out: Path, methods: Sequence[str]) -> None:
    """One line a method: the published draw. Other methods' lines in the file stay."""
    target = out / "recovery-voc.json"
    known = json.loads(target.read_text()) if target.is_file() else []
    X, Y, Z, names = load(folder)
    labels, rows = Labels.from_matrix(Z, names), {line["method"]: line for line in known}
    for name in methods:
        fitted = crossfit(X, labels, spec=name, k=1.46 if name == "role" else None, progress=False)
        whole = fit_probes(X, labels, [fitted.spec], progress=False)
        seen = 100 * float(label_recovery_ap(whole.scores(X, 0).numpy(), Y, Z))
        with tempfile.TemporaryDirectory() as temporary:
            done = recover(
                None, labels, Path(temporary) / "recovered.parquet", scores=fitted, precision=None, show=False
            )
            line = {"method": name, "published_in_sample": PUBLISHED.get(name), "in_sample_mAP": seen}
            line |= {"probe": str(fitted.spec), **quality(done, fitted, Y, Z)}
        rows[name] = line | {"reason": fitted.reason}
        print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in line.items()}), flush=True)
    write(target, [rows[name] for name in METHODS if name in rows])


def remembered(function: Any) -> Any:
    """The last result, given again for the very same first argument."""
    last: list[Any] = [None, None]

    def call(first: Any, *rest: Any, **options: Any) -> Any:
        if last[0] is not first:
            last[:] = first, function(first, *rest, **options)
        return last[1]

    return call


def coverage(case: str, seeds: int, out: Path, keep: Path | None, *, audited: int = 200) -> None:
    """Intervals against the truth over label draws: uniform and by class frequency, alone and with an audit.

    Scores are kept in, and taken from, the folder `keep` where one is given.
    """
    X, Y = CASES[case]()
    draws = draws_of(Y, seeds)
    specs = {name: ProbeSpec("em", lr=1e-3, batch_size=128, epochs=12, labels=name) for name in draws}
    scores = held_out_scores(X, draws, specs, keep=None if keep is None else keep / f"{case}-em{seeds}.npz")
    lines: list[dict[str, Any]] = []
    # the audit comes after the calibration: what a draw's two recoveries share is computed once
    shared = {name: getattr(completion, name) for name in ("draw_sample", "fit_calibration", "measure")}
    for name, function in shared.items():
        setattr(completion, name, remembered(function))
    for name, labels in draws.items():
        scored = ArrayScores(scores[name])
        Z, rng = labels.to_dense(), np.random.default_rng(7 + len(lines))
        chosen = np.sort(rng.choice(len(Y), audited, replace=False))
        answers = AuditRows(chosen, np.where(Y[chosen] > 0, 1, -1).astype(np.int8), np.full(audited, audited / len(Y)))
        ways: dict[str, dict[str, Any]] = {"none": {}, "preference 4": {"preference": 4.0}}
        for kind, how in (ways | {f"{audited} rows": {"audit": answers}}).items():
            with tempfile.TemporaryDirectory() as temporary:
                target = Path(temporary) / "recovered.parquet"
                done = recover(None, labels, target, scores=scored, precision=None, show=False, **how)
                line = {"case": case, "draw": name.rstrip("0123456789"), "name": name, "audit": kind}
                lines.append(line | quality(done, done.scores, Y, Z))
    for name, function in shared.items():
        setattr(completion, name, function)
    write(out / f"recovery-coverage-{case}.json", lines)
    for draw in ("uniform", "frequency"):
        for kind in ("none", "preference 4", f"{audited} rows"):
            mine = [line for line in lines if line["draw"] == draw and line["audit"] == kind]
            numbers = [key for key in mine[0] if isinstance(mine[0][key], float)]
            means = {key: round(float(np.mean([m[key] for m in mine])), 4) for key in numbers}
            print(case, draw, kind, json.dumps(means), flush=True)


def naming(case: str, seeds: int, *, audited: int = 200) -> dict[str, Any]:
    """How often the naming test rejects a fair draw (p ≤ 0.05, ≤ 0.01) from rows audited at random."""
    _, Y = CASES[case]()
    found: dict[str, list[float]] = {"uniform": [], "frequency": []}
    names = list(map(str, range(Y.shape[1])))
    for name, labels in draws_of(Y, seeds).items():
        rows = np.random.default_rng(len(found["frequency"])).choice(len(Y), audited, replace=False)
        answers = np.where(Y[rows] > 0, 1, -1).astype(np.int8)
        test = naming_test(labels.rows(rows).numpy(), answers, names, repeats=300)
        found[name.rstrip("0123456789")].append(1.0 if test is None else test.probability)
    rates = {kind: {str(a): float(np.mean(np.array(p) <= a + 1e-9)) for a in (0.05, 0.01)} for kind, p in found.items()}
    print(case, json.dumps(rates), flush=True)
    return {"case": case, "draws": seeds, "audited": audited, **rates}


def scale(rows: int, classes: int, dim: int, epochs: int, out: Path) -> None:
    """Time and peak memory of a whole recovery; features in a memory-mapped float16 file."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "features.npy"
        X = np.lib.format.open_memmap(path, "w+", np.float16, (rows, dim))
        W = rng.standard_normal((classes, dim)).astype(np.float32)
        y = rng.integers(classes, size=rows)
        for start in range(0, rows, 50_000):
            part = slice(start, min(start + 50_000, rows))
            other = rng.integers(classes, size=part.stop - start)
            noise = rng.standard_normal((part.stop - start, dim)).astype(np.float32)
            X[part] = (W[y[part]] + W[other] + 2 * noise) / dim**0.5
        X.flush()
        labels = Labels.from_classes(y, num_classes=classes)
        X = np.load(path, mmap_mode="r")
        base = _peak()
        spec = ProbeSpec("em", lr=1e-2, batch_size=1024, epochs=epochs)
        started = time.perf_counter()
        done = recover(X, labels, Path(temporary) / "recovered.parquet", method=spec, show=False)
        took = time.perf_counter() - started
        size = (Path(temporary) / "recovered.parquet").stat().st_size
    found = {
        "rows": rows, "classes": classes, "dim": dim, "epochs": epochs, "seconds": round(took, 1),
        "peak_GiB": round(_peak(), 2), "before_GiB": round(base, 2), "file_MiB": round(size / 2**20, 1), "k": done.k,
    }  # fmt: skip
    print(json.dumps(found), flush=True)
    write(out / f"recovery-scale-{rows}x{classes}.json", found)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--voc", type=Path, default=VOC)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS, help="of the table")
    parser.add_argument("--coverage", type=int, metavar="SEEDS")
    parser.add_argument("--cases", nargs="+", choices=sorted(CASES), default=["voc"])
    parser.add_argument("--keep", type=Path, help="a folder for the coverage's scores")
    parser.add_argument("--naming", type=int, metavar="SEEDS", help="the test of the draw, on --cases")
    parser.add_argument("--scale", type=int, nargs=2, metavar=("ROWS", "CLASSES"))
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.table:
        table(given.voc, given.out, given.methods)
    if given.coverage:
        for case in given.cases:
            coverage(case, given.coverage, given.out, given.keep)
    if given.naming:
        write(given.out / "recovery-naming.json", [naming(case, given.naming) for case in given.cases])
    if given.scale:
        scale(*given.scale, given.dim, given.epochs, given.out)
