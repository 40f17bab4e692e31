"""What came of a recovery, class by class."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelabel.recovery.thresholds import Thresholds

Floats = NDArray[np.float64]
Z95 = 1.959963984540054
#: Log odds of a class are believed to be right up to a factor of 1 ± this, and those of all classes alike.
SLOPE = 0.25
#: Labels a row that are too many to be in doubt together with none.
OPEN = 0.2


@dataclass(frozen=True)
class ClassSummary:
    """One class: known, expected, called; intervals are 95%."""

    name: str
    observed: int  #: observed positives
    expected: float  #: expected true count, the observed ones included
    low: float
    high: float
    missing: float  #: expected positives among the unknown entries
    frequency: float  #: observed / expected: how often a positive of this class was named
    threshold: float | None  #: of the probability; None calls nothing
    called: int  #: unknown entries called present
    precision: float | None  #: expected, of the called ones
    precision_low: float | None
    precision_high: float | None
    note: str = ""


def summarise(
    names: Sequence[str],
    observed: NDArray[np.int64],
    missing: Floats,
    spread: Floats,
    model_error: Floats,
    thresholds: Thresholds,
    *,
    slope_error: float = SLOPE,
    preference: float = 1.0,
) -> list[ClassSummary]:
    """Per-class lines.

    `spread` is Σq(1−q) of unknown entries, `model_error` the standard error of `missing` for reasons other than
    chance in the labels themselves. For precision it is taken as the shift of all log odds that would explain it,
    beside log odds that are all too large or too small by a factor of 1 ± `slope_error`. `preference`: how many times
    more readily a class may have been named than another that was there too: what is missing of it is then that much
    more or less.
    """
    error = np.sqrt(spread + model_error**2)
    shift = np.divide(model_error, spread, out=np.zeros_like(spread), where=spread > 0)
    out = []
    for i, name in enumerate(names):
        known, m = int(observed[i]), float(missing[i])
        called = float(thresholds.called[i])
        precision = low = high = None
        if called > 0:
            precision = float(thresholds.precision[i])
            s = float(thresholds.spread[i])
            lean = slope_error * float(thresholds.lean[i])
            move = math.log(preference) / Z95
            half = Z95 * math.sqrt(s + (float(shift[i]) * s) ** 2 + lean**2 + (move * s) ** 2) / called
            low, high = max(precision - half, 0.0), min(precision + half, 1.0)
        limit = float(thresholds.value[i])
        total = known + m
        out.append(
            ClassSummary(
                str(name),
                known,
                total,
                known + max(m - math.hypot(Z95 * float(error[i]), m * (1 - 1 / preference)), 0.0),
                known + m + math.hypot(Z95 * float(error[i]), m * (preference - 1)),
                m,
                known / total if total > 0 else math.nan,
                limit if math.isfinite(limit) else None,
                int(called),
                precision,
                low,
                high,
                _note(known),
            )
        )
    return out


@dataclass(frozen=True)
class Added:
    """All labels that are called present: how many, and which share of them is expected to be right."""

    labels: int
    precision: float | None
    low: float | None
    high: float | None

    def __str__(self) -> str:
        if not self.labels:
            return "no label is added: none is likely enough; review or audit more pictures, or ask for less"
        assert self.precision is not None
        what = counted(self.labels, "label is", "labels are")
        return f"{what} added, {self.precision:.0%} ({self.low:.0%}–{self.high:.0%}) expected to be right"


def counted(number: int, one: str, many: str) -> str:
    """A number and what it counts."""
    return f"{number:,} {one if number == 1 else many}"


def added(summary: Sequence[ClassSummary]) -> Added:
    """Classes together; the interval is the mean of theirs, for what misleads one class misleads the others too."""
    called = sum(s.called for s in summary)
    if not called:
        return Added(0, None, None, None)
    shares = ((s.called, s.precision or 0.0, s.precision_low or 0.0, s.precision_high or 0.0) for s in summary)
    weight, *ends = np.array(list(shares)).T
    precision, low, high = (float(weight @ end / called) for end in ends)
    return Added(called, precision, low, high)


def is_open(interval: tuple[float, float], least: float) -> bool:
    """Whether the labels leave k open: nothing need be missing, and more than `OPEN` labels a row may be."""
    return interval[0] <= least and interval[1] > least + OPEN


def assumption(audited: bool, preference: float) -> str:
    """What the intervals rest on, in words."""
    if preference > 1:
        return f"a class may have been named up to {preference:g} times more readily than another that was there too"
    if audited:
        return "the audited rows are a sample with the probabilities the plan says"
    return "the observed label is a fair draw among a row's labels; if some are named first, only an audit shows it"


def _note(known: int) -> str:
    if known == 0:
        return "never observed: nothing was learnt of it"
    if known == 1:
        return "observed once: no model scored that example having seen the class"
    return ""


def as_rows(summary: Sequence[ClassSummary]) -> list[dict[str, Any]]:
    """Dictionaries with JSON's numbers: NaN becomes None."""
    clean = []
    for line in summary:
        row = asdict(line)
        clean.append({k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()})
    return clean


def as_csv(summary: Sequence[ClassSummary]) -> str:
    """The same as CSV text."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [f.name for f in fields(ClassSummary)], lineterminator="\n")
    writer.writeheader()
    for row in as_rows(summary):
        writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
    return text.getvalue()


def as_text(summary: Sequence[ClassSummary], *, most: int = 30) -> str:
    """A few lines for a terminal: the classes with most missing labels first."""
    lines = [
        f"{'class':<20} {'observed':>8} {'expected':>9} {'95% interval':>17} {'missing':>8} {'called':>7} precision"
    ]
    for s in sorted(summary, key=lambda s: -s.missing)[:most]:
        said = "–" if s.precision is None else f"{s.precision:.2f} ({s.precision_low:.2f}–{s.precision_high:.2f})"
        span, name = f"{s.low:.0f}–{s.high:.0f}", " ".join(s.name.split())[:20]
        lines.append(f"{name:<20} {s.observed:>8} {s.expected:>9.0f} {span:>17} {s.missing:>8.0f} {s.called:>7} {said}")
    return "\n".join(lines + ([f"… {len(summary) - most} more classes"] if len(summary) > most else []))
