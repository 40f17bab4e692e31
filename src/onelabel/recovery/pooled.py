"""Intervals of an audit's overall numbers that hold where few errors, or none, were seen.

Linearisation takes an estimate's variance from the errors that were audited: where none of the wrong labels was drawn
it is next to nothing, and a precision of 1 comes out as certain. Here the three counts of `onelabel.recovery.rare` are
totals of all classes, a row's entries together (rows are drawn, not entries), each with the difference estimator's
value T and its variance V over the strata, to which half an event is added: w̄ the mean weight of the rows that could
have it, V⁺ = V + w̄(w̄−1)/2. Where no such event was seen an interval begins at none, and where no error was seen it ends
at all there can be.

- *added*, a share p = T/M of M called entries: Jeffreys' Beta(½ + n·p, ½ + n·(1−p)) at the effective number
  n = p⁺(1−p⁺)·M²/V⁺, p⁺ = (T + w̄/2)/(M + w̄) (Korn and Graubard 1998). No error seen: n is about the number of entries
  seen; many: what the strata and the probabilities have gained is in V, and so in n.
- *rest*, *wrong* and *missing* (added and rest), rare events: Γ(mean T, variance V) below, Γ(T + w̄/2, V⁺) above (Fay
  and Feuer 1997; Tiwari, Clegg and Zou 2006).

Precision, recall and F1 follow by MOVER, as a class's do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onelabel.recovery.design import Design
from onelabel.recovery.rare import Audited, Part, Parts
from onelabel.system import need

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Pooled:
    """The parts of all classes together, arrays of length 1, and the missing positives: added and rest at once."""

    parts: Parts
    missing: Part


def pooled_parts(t: Floats, residual: Floats, design: Design, a: Audited, level: float) -> Pooled:
    """From the totals `t` of present, kept, added and seen positives and the residuals of the audited rows, 4×n."""
    tail = (1 - level) / 2
    observed, called = float(a.observed.sum()), float(a.called.sum())
    looked, weight = a.weight > 0, (design.size / design.drawn)[design.stratum]
    outside = (a.added == 0) & (a.seen == 0)
    hit = [(looked & (kind > 0) & (a.y == sign)).sum() for kind, sign in ((a.added, 1), (outside, 1), (a.seen, 0))]
    failed = float((looked & (a.added > 0) & (a.y == 0)).sum())

    def mean_weight(entries: NDArray[np.bool_]) -> float:
        rows = entries.any(1)
        return float(weight[rows].mean()) if rows.any() else 0.0

    def events(value: float, values: Floats, seen: float, most: float) -> Part:
        return _gamma(value, design.variance(values), mean_weight(looked), tail, seen, most)

    unknown = max(a.rows * len(a.called) - observed - called, 0.0)
    added = _beta(
        float(t[2]), design.variance(residual[2]), mean_weight(looked & (a.added > 0)), tail,
        float(hit[0]), called - failed, called,
    )  # fmt: skip
    rest = events(float(t[0] - t[1]), residual[0] - residual[1], float(hit[1]), unknown)
    wrong = events(observed - float(t[3]), residual[3], float(hit[2]), observed) if hit[2] else _part(0.0, 0.0, 0.0)
    missing = events(float(t[0] - t[3]), residual[0] - residual[3], float(hit[0] + hit[1]), unknown + called - failed)
    return Pooled(Parts(added, rest, wrong, np.array([(looked & (a.added > 0)).any()])), missing)


def _beta(value: float, variance: float, weight: float, tail: float, least: float, most: float, out_of: float) -> Part:
    special = need("scipy.special", "cli")
    value = min(max(value, least), most)
    if not weight:  # none was looked at: anything between none and all
        return _part(value, least, most)
    share, smooth = value / out_of, (value + weight / 2) / (out_of + weight)
    size = smooth * (1 - smooth) * out_of**2 / max(variance + weight * max(weight - 1, 0.0) / 2, 1e-9)
    size = min(size, 1e9)
    low, high = (special.betaincinv(0.5 + size * share, 0.5 + size * (1 - share), q) for q in (tail, 1 - tail))
    low, high = (low if least else 0.0), (high if most < out_of else 1.0)
    return _part(value, min(max(low * out_of, least), value), max(min(high * out_of, most), value))


def _gamma(value: float, variance: float, weight: float, tail: float, least: float, most: float) -> Part:
    special = need("scipy.special", "cli")
    value = min(max(value, least), most)

    def quantile(centre: float, spread: float, q: float) -> float:
        if centre <= 0 or spread <= 0:
            return centre
        return float(special.gammaincinv(min(centre**2 / spread, 1e9), q) * spread / centre)

    extra = weight / 2 if weight > 1 else 0.0  # where every row was drawn nothing can have been overlooked
    low = quantile(value, variance, tail) if least else 0.0
    high = quantile(value + extra, variance + max(weight - 1, 0.0) * extra, 1 - tail)
    return _part(value, min(max(low, least), value), max(min(high, most), value))


def _part(mid: float, low: float, high: float) -> Part:
    return Part(np.array([mid]), np.array([low]), np.array([high]))
