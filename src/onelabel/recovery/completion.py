"""`recover`: every training example's missing labels, with calibrated probabilities, in one pass over the rows."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelabel.labels import Labels
from onelabel.losses.calibrate import Calibration, fit_calibration
from onelabel.losses.sample import draw_sample
from onelabel.probes import ProbeSpec
from onelabel.recovery.correction import Correction, Kind, fit_correction
from onelabel.recovery.folds import ArrayScores, CrossFit, Scored, crossfit, pieces
from onelabel.recovery.preference import NamingTest, naming_test
from onelabel.recovery.schema import COLUMNS, RECOVERED
from onelabel.recovery.summary import SLOPE, Z95, ClassSummary, as_csv, as_rows, assumption, is_open, summarise
from onelabel.recovery.table import RecoveredFile, header, parquet_file
from onelabel.recovery.thresholds import PRECISION, Thresholds, choose_thresholds
from onelabel.recovery.totals import Totals, total_variance
from onelabel.recovery.uncertainty import STEPS, measure
from onelabel.system import atomic_write, progress


@dataclass(frozen=True)
class AuditRows:
    """Answers of an audit: rows × all classes, in {+1, −1, 0 unanswered}, and each row's inclusion probability."""

    rows: NDArray[np.int64]
    values: NDArray[np.int8]
    inclusion: NDArray[np.float64]

    def apply(self, labels: Labels) -> tuple[Labels, int]:
        """The labels with the answers in, and how many observed positives they contradict: the audit is believed."""
        at, cols = np.nonzero(self.values)
        answers = self.values[at, cols]
        before = labels.rows(self.rows).numpy()[at, cols]
        return labels.with_updates(self.rows[at], cols, answers), int(((before > 0) & (answers < 0)).sum())


@dataclass(frozen=True)
class Recovered:
    """What `recover` found; the candidates themselves are in the file."""

    file: RecoveredFile
    summary: list[ClassSummary]
    thresholds: Thresholds
    calibration: Calibration
    correction: Correction | None
    k: float
    k_interval: tuple[float, float]
    contradictions: int
    scores: Scored
    naming: NamingTest | None = None
    k_open: bool = False  #: nothing should be built on k: its interval goes from nothing missing to much

    def labels(self) -> Labels:
        """The completed labels: observed ones, and +1 where called."""
        return self.file.labels()


def recover(
    features: Any,
    labels: Labels,
    out: str | Path,
    *,
    scores: Any = None,
    method: ProbeSpec | str = "em",
    folds: int = 5,
    k: float | None = None,
    audit: AuditRows | None = None,
    calibration: Kind = "auto",
    precision: float | None = PRECISION,
    preference: float = 1.0,
    floor: float = 0.05,
    top: int = 20,
    examples: Sequence[str] | None = None,
    root: str = "",
    max_rows: int | None = None,
    seed: int = 0,
    device: Any = None,
    show: bool = True,
) -> Recovered:
    """Recover missing labels; writes `out` (Parquet), and beside it a .json and a .csv with the summary.

    Args:
        features: N×D, frozen features; None where `scores` are given.
        labels: the observed labels, as they were before any audit.
        scores: held-out logits N×L instead (an array, a memory map, or a `Scored`); each row by a model without it.
        method: a probe, a method's name, or "auto".
        k: mean positives per row where it is known; else it comes out of the EM, or of the audit.
        audit: answers for some rows; they correct the probabilities and become observed labels.
        calibration: how, see `fit_correction`.
        precision: a class's labels are added from the threshold at which so many of them are expected to be right;
            None: from the one with the best expected F1, which adds more and more wrong ones.
        preference: how many times more readily a class may have been named than another that was there too: intervals
            become as wide as that makes them. 1: a fair draw among the labels present.
        floor, top: unknown entries are written from this probability on, at most so many a row; observed ones and a
            row's likeliest always.
        examples: a name per row. root: the folder they are relative to.
        max_rows: rows each cross-fitted probe trains on at most.
    """
    if not 0 < floor < 1 or top < 1:
        raise ValueError(f"floor must lie in (0, 1) and top be at least 1, got {floor!r} and {top!r}")
    if not 1 <= preference < math.inf:
        raise ValueError(f"preference must be at least 1, got {preference!r}")
    scored = _scored(features, labels, scores, method, folds, k, max_rows, seed, device, show)
    if scored.shape != labels.shape:
        raise ValueError(f"scores have shape {scored.shape}, labels {labels.shape}: they must be equal")
    if examples is not None and len(examples) != len(labels):
        raise ValueError(f"examples: {len(examples)} names for {len(labels)} rows, expected one each")
    names = labels.class_names or tuple(map(str, range(labels.num_classes)))
    sample = draw_sample(scored, labels, seed=seed)
    with progress("calibrating", 1 + STEPS) as advance:
        fitted = fit_calibration(sample, k=k)
        advance(1)
        sure = measure(sample, fitted, k=k, seed=seed, advance=advance)
    correction, contradictions, known, naming = None, 0, labels, None
    if audit is not None and len(audit.rows):
        correction = _correct(scored, labels, fitted, audit, calibration)
        known, contradictions = audit.apply(labels)
        naming = naming_test(labels.rows(audit.rows).numpy(), audit.values, names)
    totals = Totals(labels.num_classes)
    target = Path(out)
    with (
        parquet_file(target, COLUMNS[RECOVERED], RECOVERED, header(root, names, len(labels))) as write,
        progress("recovering", len(labels)) as advance,
    ):
        for rows in pieces(scored):
            z = known.rows(rows).numpy()
            named = labels.rows(rows).numpy()  # the draw that was made, whatever an audit said later
            q = fitted.posterior(scored.rows(rows), named).numpy()
            mended = q if correction is None else np.where(named == 0, correction.apply(q), q)
            totals.add(q, mended, z == 0, correction)
            write(_columns(rows, mended, z, names, examples, floor, top))
            advance(len(rows))
    thresholds = choose_thresholds(totals.histogram, precision=precision, floor=floor)
    rows_ = len(labels)
    draw, doubt = sure.draw * rows_, sure.doubt * rows_
    if correction is not None:
        # The answers settle the level; how a class differs from the others they tell as far as its rows were audited.
        own = totals.spread / np.sqrt(np.maximum(correction.information, 1e-9))
        left = 1 / np.hypot(1 / np.maximum(doubt[:-1], 1e-9), 1 / np.maximum(own, 1e-9))
        doubt[:-1] = np.hypot(np.sqrt(correction.variance(totals.gradient)), left)
        doubt[-1] = np.sqrt(total_variance(correction, totals.gradient))
    error = np.sqrt(draw**2 + doubt**2)
    positives = known.counts().positives
    slope = SLOPE if correction is not None else math.hypot(SLOPE, SLOPE)  # answers settle what classes have in common
    summary = summarise(
        names, positives, totals.missing, totals.spread, error[:-1], thresholds, slope_error=slope,
        preference=preference,
    )  # fmt: skip
    mean = float(positives.sum() + totals.missing.sum()) / max(rows_, 1)
    half = Z95 * float(np.sqrt(totals.spread.sum() + error[-1] ** 2))
    down, up = (float(np.sqrt(((totals.missing * by) ** 2).sum())) for by in (1 - 1 / preference, preference - 1))
    interval = (mean - math.hypot(half, down) / max(rows_, 1), mean + math.hypot(half, up) / max(rows_, 1))
    least = float(positives.sum()) / max(rows_, 1)
    interval = (max(interval[0], least), min(interval[1], float(labels.num_classes)))
    left_open = is_open(interval, least)
    about = {
        "schema_version": 1,
        "thresholds": [s.threshold for s in summary],
        "rule": thresholds.rule,
        "floor": floor,
        "top": top,
        "k": mean,
        "k_interval": list(interval),
        "k_open": left_open,
        "intervals_assume": assumption(audit is not None, preference),
        "naming": None if naming is None else naming.to_json(),
        "method": str(scored.spec) if isinstance(scored, CrossFit) else "given scores",
        "reason": scored.reason if isinstance(scored, CrossFit) else "",
        "folds": folds if isinstance(scored, CrossFit) else None,
        "audited_rows": 0 if audit is None else len(audit.rows),
        "contradictions": contradictions,
        "calibration": "naming" if correction is None else f"naming+{correction.kind}",
        "converged": fitted.converged,
        "classes": as_rows(summary),
    }
    atomic_write(target.with_suffix(".json"), json.dumps(about, indent=1, ensure_ascii=False) + "\n")
    atomic_write(target.with_suffix(".csv"), as_csv(summary))
    file = RecoveredFile.open(target)
    return Recovered(
        file, summary, thresholds, fitted, correction, mean, interval, contradictions, scored, naming, left_open
    )


def _scored(
    features: Any, labels: Labels, scores: Any, method: Any, folds: int, k: float | None, max_rows: int | None,
    seed: int, device: Any, show: bool,
) -> Scored:  # fmt: skip
    if scores is not None:
        given: Scored = scores if hasattr(scores, "rows") else ArrayScores(scores)
        return given
    if features is None:
        raise ValueError("features: give N×D features, or held-out scores=")
    options: dict[str, Any] = {"folds": folds, "k": k, "max_rows": max_rows, "seed": seed}
    return crossfit(features, labels, spec=method, device=device, progress=show, **options)


def _correct(scored: Scored, labels: Labels, fitted: Calibration, audit: AuditRows, kind: Kind) -> Correction:
    """Learn from the answers at entries that were unknown."""
    named = labels.rows(audit.rows).numpy()
    q = fitted.posterior(scored.rows(audit.rows), named).numpy()
    at, cols = np.nonzero((named == 0) & (audit.values != 0))
    weights = 1 / audit.inclusion[at]
    y = audit.values[at, cols] > 0
    return fit_correction(q[at, cols], y, cols, num_classes=labels.num_classes, weights=weights, kind=kind)


def _columns(
    rows: NDArray[np.int64],
    q: NDArray[Any],
    z: NDArray[np.int8],
    names: Sequence[str],
    examples: Sequence[str] | None,
    floor: float,
    top: int,
) -> dict[str, Any]:
    """The entries of these rows to write, likeliest first within a row."""
    best = q.argmax(1)
    likely = q >= floor
    keep = likely | (z != 0)
    keep[np.arange(len(q)), best] = True
    at, cols = np.nonzero(keep)
    p = q[at, cols]
    order = np.lexsort((cols, -p, at))
    at, cols, p = at[order], cols[order], p[order]
    first = np.searchsorted(at, np.arange(len(q)))
    rank = np.arange(len(at)) - first[at] + 1
    low = np.flatnonzero(p < floor)  # others that were not kept may lie above these
    for start in range(0, len(low), 4096):
        part = low[start : start + 4096]
        rank[part] = 1 + (q[at[part]] > p[part, None]).sum(1)
    stay = (rank <= top) | (z[at, cols] != 0)
    at, cols, p, rank = at[stay], cols[stay], p[stay], rank[stay]
    row = rows[at]
    return {
        "row": row,
        "example": [examples[i] for i in row] if examples is not None else row.astype(str),
        "class": np.asarray(names, dtype=object)[cols],
        "class_index": cols.astype(np.int32),
        "probability": p.astype(np.float32),
        "observed": z[at, cols],
        "rank": rank.astype(np.int32),
    }
