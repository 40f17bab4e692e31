"""`estimate_audit`: unbiased estimates of precision, recall, F1, k and missing labels from an audit's answers."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from onelabel.recovery.audit import Plan
from onelabel.recovery.design import Design, Linear, bootstrap
from onelabel.recovery.table import RecoveredFile

Floats = NDArray[np.float64]
#: What is totalled per class: present; present and in the completed set; present and added; present and observed.
TRUE, KEPT, ADDED, SEEN = range(4)


@dataclass(frozen=True)
class Estimate:
    """A value with its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f}–{self.high:.3f})"


@dataclass(frozen=True)
class AuditEstimate:
    """What an audit says of the completed labels (observed positives and called entries), overall and by class.

    `overall` and each class of `classes` hold: `count` (true positives in the dataset), `precision` and `recall` of
    the completed labels, `f1`, `added_precision` (of the called entries alone), `missing_rate` (true positives that
    were not observed). `overall` also holds `k`. A ratio of nothing is NaN.
    """

    rows: int
    level: float
    overall: dict[str, Estimate]
    classes: dict[str, dict[str, Estimate]]
    contradictions: int
    unanswered: int

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; NaN becomes None."""

        def plain(e: Estimate) -> dict[str, float | None]:
            return {k: v if math.isfinite(v) else None for k, v in asdict(e).items()}

        out = {"rows": self.rows, "level": self.level, "contradictions": self.contradictions}
        out["unanswered"] = self.unanswered
        classes = {name: {k: plain(v) for k, v in each.items()} for name, each in self.classes.items()}
        return {**out, "overall": {k: plain(v) for k, v in self.overall.items()}, "classes": classes}

    def __str__(self) -> str:
        return f"{self.rows} audited rows: " + "; ".join(f"{k} {v}" for k, v in self.overall.items())


def estimate_audit(
    recovered: RecoveredFile | str | os.PathLike[str],
    plan: Plan,
    answers: NDArray[np.int8],
    *,
    level: float = 0.95,
    intervals: Literal["linear", "bootstrap"] = "linear",
    repeats: int = 2000,
    seed: int = 0,
) -> AuditEstimate:
    """Estimates for the whole dataset from a plan's rows.

    Every total (of positives, of those in the completed set …) is the difference estimator Σx + Σ_{audited}(y − x)/π
    with x the probabilities in the recovered file: unbiased over the plan's draw whatever x is, and the closer x, the
    narrower. Ratios are linearised; their intervals are Student's on the logit scale. ``intervals="bootstrap"``
    resamples rows within strata (Rao and Wu 1988) and takes percentiles.

    Args:
        answers: rows × classes as `read_answers` gives them; an unanswered entry (0) counts as its stratum's mean.
    """
    file = recovered if isinstance(recovered, RecoveredFile) else RecoveredFile.open(recovered)
    if answers.shape != (len(plan.rows), len(file.class_names)):
        raise ValueError(f"answers have shape {answers.shape}; expected {(len(plan.rows), len(file.class_names))}")
    if not answers.any():
        raise ValueError("answers: none of the plan's rows was answered")
    whole = (answers != 0).any(1)  # a row nobody looked at is left out of its stratum
    names = sorted({s for s, use in zip(plan.stratum, whole, strict=True) if use})
    place = {name: i for i, name in enumerate(names)}
    stratum = np.array([place[s] for s, use in zip(plan.stratum, whole, strict=True) if use])
    size = np.array([plan.sizes[name][0] for name in names], np.float64)
    lost = sum(plan.sizes[name][0] for name in plan.sizes if name not in place)
    size *= 1 + lost / max(size.sum(), 1)
    design = Design(stratum, size, np.bincount(stratum).astype(np.float64))
    known = _read(file, plan.rows[whole])
    y = _answers(answers[whole], known.x, design)
    mask = np.stack([np.ones_like(known.kept), known.kept, known.added, known.seen])  # 4×n×L
    residual = mask * (y - known.x)
    expected = known.x * (1 - known.x)
    base = np.stack([known.sum_all, known.sum_kept, known.sum_added, known.sum_seen])
    totals = base + np.stack([design.total(r) for r in residual])
    make = Linear(design, residual, mask * expected, level) if intervals == "linear" else None
    boot = None if make is not None else bootstrap(design, residual, base, repeats, seed)
    sizes = (known.count_kept, known.count_added)
    classes = {}
    for i, name in enumerate(file.class_names):
        count = (float(sizes[0][i]), float(sizes[1][i]))
        classes[name] = _numbers(totals[:, i], count, make, (i,), None if boot is None else boot[:, :, i], level)
    every = tuple(range(len(file.class_names)))
    count = (float(sizes[0].sum()), float(sizes[1].sum()))
    whole_boot = None if boot is None else boot.sum(2)
    overall = _numbers(totals.sum(1), count, make, every, whole_boot, level)
    rows = float(size.sum())
    t = overall["count"]
    overall["k"] = Estimate(t.value / rows, t.low / rows, t.high / rows)
    contradictions = int(((answers[whole] < 0) & known.seen.astype(bool)).sum())
    return AuditEstimate(int(whole.sum()), level, overall, classes, contradictions, int((answers[whole] == 0).sum()))


@dataclass(frozen=True)
class _Known:
    """The audited rows' probabilities and states, n×L, and totals over all rows, L."""

    x: Floats
    kept: Floats
    added: Floats
    seen: Floats
    sum_all: Floats
    sum_kept: Floats
    sum_added: Floats
    sum_seen: Floats
    count_kept: Floats
    count_added: Floats


def _read(file: RecoveredFile, rows: NDArray[np.int64]) -> _Known:
    classes, limits = len(file.class_names), file.thresholds
    x, kept, added, seen = (np.zeros((len(rows), classes)) for _ in range(4))
    sums = np.zeros((6, classes))
    order = np.argsort(rows)
    for c in file.batches():
        at, observed = c["class_index"], c["observed"]
        p = np.where(observed > 0, 1.0, np.where(observed < 0, 0.0, c["probability"].astype(np.float64)))
        plus = (observed == 0) & (c["probability"] >= limits[at])
        given = observed > 0
        both = plus | given
        for i, value in enumerate((p, p * both, p * plus, p * given, both, plus)):
            sums[i] += np.bincount(at, value, classes)
        near = np.minimum(np.searchsorted(rows[order], c["row"]), len(rows) - 1)
        mine = rows[order][near] == c["row"]
        place, col = order[near[mine]], at[mine]
        x[place, col], kept[place, col] = p[mine], both[mine]
        added[place, col], seen[place, col] = plus[mine], given[mine]
    return _Known(x, kept, added, seen, *sums)


def _answers(answers: NDArray[np.int8], x: Floats, design: Design) -> Floats:
    """1, 0; an unanswered entry is x plus the mean residual of its class and stratum."""
    y = (answers > 0).astype(np.float64)
    open_ = answers == 0
    if open_.any():
        residual = np.where(open_, 0.0, y - x)
        for h in range(len(design.size)):
            mine = design.stratum == h
            count = (~open_[mine]).sum(0)
            mean = residual[mine].sum(0) / np.maximum(count, 1)
            y[mine] = np.where(open_[mine], x[mine] + mean, y[mine])
    return y


def _numbers(
    t: Floats,
    count: tuple[float, float],
    make: Linear | None,
    classes: tuple[int, ...],
    boot: Floats | None,
    level: float,
) -> dict[str, Estimate]:
    kept, added = count
    # name → numerator index, scale, denominator (index or number)
    ratios: dict[str, tuple[Floats, Floats, float]] = {
        "precision": (_unit(KEPT), np.zeros(4), kept),
        "recall": (_unit(KEPT), _unit(TRUE), 0.0),
        "f1": (2 * _unit(KEPT), _unit(TRUE), kept),
        "added_precision": (_unit(ADDED), np.zeros(4), added),
        "missing_rate": (_unit(TRUE) - _unit(SEEN), _unit(TRUE), 0.0),
    }
    out = {"count": _count(t, make, classes, boot, level)}
    for name, (above, below, constant) in ratios.items():
        bottom = float(below @ t) + constant
        if bottom <= 0:
            out[name] = Estimate(math.nan, math.nan, math.nan)
            continue
        value = float(above @ t) / bottom
        if boot is not None:
            spread = (boot @ above) / np.maximum(boot @ below + constant, 1e-9)
            low, high = np.quantile(spread, [(1 - level) / 2, (1 + level) / 2])
        else:
            assert make is not None
            half = make.half((above - value * below) / bottom, classes)
            low, high = _on_logit_scale(value, half)
        out[name] = Estimate(_unit_interval(value), _unit_interval(float(low)), _unit_interval(float(high)))
    return out


def _count(t: Floats, make: Linear | None, classes: tuple[int, ...], boot: Floats | None, level: float) -> Estimate:
    value = float(t[TRUE])
    if boot is not None:
        low, high = np.quantile(boot[:, TRUE], [(1 - level) / 2, (1 + level) / 2])
        return Estimate(value, max(float(low), 0.0), float(high))
    assert make is not None
    half = make.half(_unit(TRUE), classes)
    return Estimate(value, max(value - half, 0.0), value + half)


def _on_logit_scale(value: float, half: float) -> tuple[float, float]:
    if not 1e-6 < value < 1 - 1e-6 or half == 0:
        return value - half, value + half
    centre, reach = math.log(value / (1 - value)), half / (value * (1 - value))
    return tuple(0.5 * (1 + math.tanh((centre + s * reach) / 2)) for s in (-1, 1))  # type: ignore[return-value]


def _unit(i: int) -> Floats:
    out = np.zeros(4)
    out[i] = 1.0
    return out


def _unit_interval(value: float) -> float:
    return min(max(value, 0.0), 1.0)
