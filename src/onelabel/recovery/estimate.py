"""`estimate_audit`: unbiased estimates of precision, recall, F1, k and missing labels from an audit's answers."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelabel.recovery.audit import Plan
from onelabel.recovery.audited import entry_weights, filled_in, read_audited
from onelabel.recovery.design import Design
from onelabel.recovery.pooled import pooled_parts
from onelabel.recovery.rare import Audited, Part, Parts, class_parts
from onelabel.recovery.table import RecoveredFile

Floats = NDArray[np.float64]
#: What is totalled per class: present; present and in the completed set; present and added; present and observed.
TRUE, KEPT, ADDED, SEEN = range(4)


@dataclass(frozen=True)
class Estimate:
    """A value with its interval; not `estimable`: no audited entry speaks of it, the interval is all there can be."""

    value: float
    low: float
    high: float
    estimable: bool = True

    def __str__(self) -> str:
        said = f"{self.value:.3f}" if self.estimable else "not estimable"
        return f"{said} ({self.low:.3f}–{self.high:.3f})"


@dataclass(frozen=True)
class AuditEstimate:
    """What an audit says of the completed labels (observed positives and called entries), overall and by class.

    `overall` and each class of `classes` hold: `count` (true positives in the dataset), `precision` and `recall` of
    the completed labels, `f1`, `added_precision` (of the called entries alone), `missing_rate` (true positives that
    were not observed). `overall` also holds `k`. A ratio of nothing is NaN. `unanswered` counts the entries without an
    answer of the `rows` that have one, `unanswered_rows` planned rows without any.
    """

    rows: int
    level: float
    overall: dict[str, Estimate]
    classes: dict[str, dict[str, Estimate]]
    contradictions: int
    unanswered: int
    unanswered_rows: int

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; NaN becomes None."""

        def plain(e: Estimate) -> dict[str, float | None]:
            return {k: v if math.isfinite(v) else None for k, v in asdict(e).items()}

        out = {"rows": self.rows, "level": self.level, "contradictions": self.contradictions}
        out |= {"unanswered": self.unanswered, "unanswered_rows": self.unanswered_rows}
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
) -> AuditEstimate:
    """Estimates for the whole dataset from a plan's rows, which are found in the file by their pictures' names.

    Every total (of positives, of those in the completed set …) is the difference estimator Σx + Σ_{audited}(y − x)/π
    with x the probabilities in the recovered file: unbiased over the plan's draw whatever x is, and the closer x, the
    narrower. Intervals hold where few errors were seen, or none: `onelabel.recovery.pooled` has those of all classes
    together, `onelabel.recovery.rare` a class's.

    Args:
        answers: rows × classes as `read_answers` gives them; an unanswered entry (0) counts as its stratum's mean.
    """
    file = recovered if isinstance(recovered, RecoveredFile) else RecoveredFile.open(recovered)
    if answers.shape != (len(plan.rows), len(file.class_names)):
        raise ValueError(f"answers have shape {answers.shape}; expected {(len(plan.rows), len(file.class_names))}")
    if not answers.any():
        raise ValueError("answers: none of the plan's rows was answered")
    plan = plan.placed(file)
    whole = (answers != 0).any(1)  # a row nobody looked at is left out of its stratum
    names = sorted({s for s, use in zip(plan.stratum, whole, strict=True) if use})
    place = {name: i for i, name in enumerate(names)}
    stratum = np.array([place[s] for s, use in zip(plan.stratum, whole, strict=True) if use])
    size = np.array([plan.sizes[name][0] for name in names], np.float64)
    lost = sum(plan.sizes[name][0] for name in plan.sizes if name not in place)
    size *= 1 + lost / max(size.sum(), 1)
    design = Design(stratum, size, np.bincount(stratum).astype(np.float64))
    known = read_audited(file, plan.rows[whole])
    y = filled_in(answers[whole], known.x, design)
    mask = np.stack([np.ones_like(known.kept), known.kept, known.added, known.seen])  # 4×n×L
    residual = mask * (y - known.x)
    base = np.stack([known.sum_all, known.sum_kept, known.sum_added, known.sum_seen])
    totals = base + np.stack([design.total(r) for r in residual])
    observed = known.count_kept - known.count_added
    weight = entry_weights(answers[whole] != 0, design)
    seen = Audited(
        weight, (answers[whole] > 0) * 1.0, known.added, known.seen, known.count_added, observed, float(size.sum())
    )
    classes = _by_class(file.class_names, totals, known.count_kept, seen, level)
    overall = _overall(totals.sum(1), float(known.count_kept.sum()), residual.sum(2), design, seen, level)
    rows, t = float(size.sum()), overall["count"]
    overall["k"] = Estimate(t.value / rows, t.low / rows, t.high / rows)
    contradictions = int(((answers[whole] < 0) & known.seen.astype(bool)).sum())
    unanswered = int((answers[whole] == 0).sum())
    return AuditEstimate(int(whole.sum()), level, overall, classes, contradictions, unanswered, int((~whole).sum()))


def _by_class(
    names: Sequence[str], totals: Floats, kept: Floats, seen: Audited, level: float
) -> dict[str, dict[str, Estimate]]:
    """Every class's numbers: unbiased values, intervals that hold for rare classes too."""
    parts, called, observed = class_parts(seen, level), seen.called, seen.observed

    def over(top: Floats, bottom: Floats) -> Floats:
        return np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)

    ends = {
        "count": parts.interval(lambda a, r, w: observed - w + a + r),
        "precision": parts.interval(lambda a, r, w: over(observed - w + a, kept)),
        "recall": parts.interval(lambda a, r, w: over(observed - w + a, observed - w + a + r)),
        "f1": parts.interval(lambda a, r, w: over(2 * (observed - w + a), observed - w + a + r + kept)),
        "added_precision": parts.interval(lambda a, r, w: over(a, called)),
        "missing_rate": parts.interval(lambda a, r, w: over(a + r, observed - w + a + r)),
    }
    blind = (called > 0) & ~parts.looked_at
    out: dict[str, dict[str, Estimate]] = {}
    for i, name in enumerate(names):
        out[name] = {}
        for what, (lows, highs) in ends.items():
            most = math.inf if what == "count" else 1.0
            value = float(totals[TRUE, i])
            if what != "count":
                above, below, constant = _ratio(what, float(kept[i]), float(called[i]))
                bottom = float(below @ totals[:, i]) + constant
                value = float(above @ totals[:, i]) / bottom if bottom > 0 else math.nan
            if math.isnan(value):
                out[name][what] = Estimate(value, value, value)
                continue
            value = min(max(value, 0.0), most)
            low, high = min(max(float(lows[i]), 0.0), value), max(min(float(highs[i]), most), value)
            out[name][what] = Estimate(value, low, high, not (blind[i] and "precision" in what))
    return out


def _ratio(name: str, kept: float, called: float) -> tuple[Floats, Floats, float]:
    """Numerator and denominator as weights of the four totals, and what is added to the denominator."""
    return {
        "precision": (_unit(KEPT), np.zeros(4), kept),
        "recall": (_unit(KEPT), _unit(TRUE), 0.0),
        "f1": (2 * _unit(KEPT), _unit(TRUE), kept),
        "added_precision": (_unit(ADDED), np.zeros(4), called),
        "missing_rate": (_unit(TRUE) - _unit(SEEN), _unit(TRUE), 0.0),
    }[name]


def _overall(
    t: Floats, kept: float, residual: Floats, design: Design, seen: Audited, level: float
) -> dict[str, Estimate]:
    """All classes together; a ratio of nothing is NaN."""
    pooled = pooled_parts(t, residual, design, seen, level)
    parts, missing = pooled.parts, pooled.missing
    observed, called = float(seen.observed.sum()), float(seen.called.sum())
    there = Parts(missing, Part(*(np.zeros(1),) * 3), parts.wrong, parts.looked_at)
    functions: dict[str, tuple[Parts, Callable[[Floats, Floats, Floats], Floats]]] = {
        "count": (there, lambda m, _, w: observed - w + m),
        "precision": (parts, lambda a, r, w: (observed - w + a) / kept),
        "recall": (parts, lambda a, r, w: (observed - w + a) / (observed - w + a + r)),
        "f1": (parts, lambda a, r, w: 2 * (observed - w + a) / (observed - w + a + r + kept)),
        "added_precision": (parts, lambda a, r, w: a / called),
        "missing_rate": (there, lambda m, _, w: m / (observed - w + m)),
    }
    out = {}
    for name, (of, function) in functions.items():
        with np.errstate(invalid="ignore", divide="ignore"):
            value = float(function(of.added.mid, of.rest.mid, of.wrong.mid)[0])
            low, high = (float(end[0]) for end in of.interval(function))
        if not math.isfinite(value):
            out[name] = Estimate(math.nan, math.nan, math.nan)
            continue
        most = math.inf if name == "count" else 1.0
        blind = called > 0 and not parts.looked_at[0] and "precision" in name
        out[name] = Estimate(value, max(low, 0.0), min(high, most), not blind)
    return out


def _unit(i: int) -> Floats:
    out = np.zeros(4)
    out[i] = 1.0
    return out
