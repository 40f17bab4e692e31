"""Intervals of one class's numbers from an audit in which few of its positives, or none, were seen.

The classes' numbers are functions of three counts, each known up to what the audit did not look at:

- *added*: of the entries called present, how many are. A share of a known number, from the audited ones with weights
  w = 1/inclusion: Jeffreys' interval Beta(½ + n·p, ½ + n·(1−p)) at the effective number n = (Σw)²/Σw(w−1) (Kish; Korn
  and Graubard 1998), the −1 because a row that was drawn is known. None audited: anything between none and all.
- *rest*: positives outside the completed set. A weighted sum of rare events: gamma intervals (Fay and Feuer 1997),
  Γ(mean R, variance v) below and Γ(R + w̄/2, v + w̄²/2) above, R = Σw·y, v = Σw(w−1)·y, w̄ the mean weight (Tiwari, Clegg
  and Zou 2006), half an event for the mid-P. Nothing seen: about three events of mean weight.
- *wrong*: observed positives that the audit contradicts, likewise; none are feared where no observed label of any
  class was contradicted.

Two or three intervals become one of a function of the counts by adding the squares of what each of them moves it by
(MOVER; Zou and Donner 2008).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onelabel.system import need

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Part:
    """A count per class: its centre, and the ends of its interval."""

    mid: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Audited:
    """The audited rows, n×L: weights (0 where unanswered), answers 0/1, which entries are called, which observed.

    `called`, `observed`, `rows`: how many there are in the whole dataset, by class (the last in all).
    """

    weight: Floats
    y: Floats
    added: Floats
    seen: Floats
    called: Floats
    observed: Floats
    rows: float


@dataclass(frozen=True)
class Parts:
    """The three counts of every class, and whether any called entry of it was audited."""

    added: Part
    rest: Part
    wrong: Part
    looked_at: NDArray[np.bool_]

    def interval(self, function: Callable[[Floats, Floats, Floats], Floats]) -> tuple[Floats, Floats]:
        """Ends of the interval of a function of (added, rest, wrong) that is monotone in each."""
        parts = (self.added, self.rest, self.wrong)
        mids = [part.mid for part in parts]
        mid = function(*mids)
        below, above = np.zeros_like(mid), np.zeros_like(mid)
        for i, part in enumerate(parts):
            moved = [
                function(*(end if i == j else m for j, m in enumerate(mids))) - mid for end in (part.low, part.high)
            ]
            below += np.minimum(np.minimum(*moved), 0.0) ** 2
            above += np.maximum(np.maximum(*moved), 0.0) ** 2
        return mid - np.sqrt(below), mid + np.sqrt(above)


def class_parts(a: Audited, level: float) -> Parts:
    """What the audit says of the three counts of each class."""
    tail = (1 - level) / 2
    outside = (a.added == 0) & (a.seen == 0)
    unknown = np.maximum(a.rows - a.called - a.observed, 0.0)
    wrong = _events(a, a.seen * (1 - a.y), a.observed, tail)
    if not (a.weight * a.seen * (1 - a.y)).any():
        wrong = Part(*(np.zeros_like(a.called),) * 3)
    return Parts(_share(a, tail), _events(a, outside * a.y, unknown, tail), wrong, (a.weight * a.added).sum(0) > 0)


def _share(a: Audited, tail: float) -> Part:
    special = need("scipy.special", "cli")
    w = a.weight * a.added
    total = w.sum(0)
    share = np.divide((w * a.y).sum(0), total, out=np.full(len(total), 0.5), where=total > 0)
    left = (w * np.maximum(a.weight - 1, 0)).sum(0)
    size = np.where(total > 0, np.minimum(total**2 / np.maximum(left, 1e-9), 1e9), 0.0)
    low, high = (special.betaincinv(0.5 + size * share, 0.5 + size * (1 - share), q) for q in (tail, 1 - tail))
    low, high = np.where((total > 0) & (share > 0), low, 0.0), np.where((total > 0) & (share < 1), high, 1.0)
    looked = (w > 0).astype(np.float64)
    least, most = (looked * a.y).sum(0), a.called - (looked * (1 - a.y)).sum(0)
    return _clipped(share * a.called, low * a.called, high * a.called, least, most)


def _events(a: Audited, hit: Floats, out_of: Floats, tail: float) -> Part:
    """A total of rare 0/1 events `hit` (n×L), of which there can be `out_of`."""
    special = need("scipy.special", "cli")
    total = (a.weight * hit).sum(0)
    variance = (a.weight * np.maximum(a.weight - 1, 0) * hit).sum(0)
    answered = (a.weight > 0).sum(0)
    mean = a.weight.sum(0) / np.maximum(answered, 1)

    def quantile(centre: Floats, spread: Floats, q: float) -> Floats:
        shape = np.minimum(centre**2 / np.maximum(spread, 1e-12), 1e9)
        value: Floats = special.gammaincinv(np.maximum(shape, 1e-12), q) * np.maximum(spread, 1e-12) / centre
        return np.where(spread > 0, value, centre)

    low = np.where(total > 0, quantile(np.maximum(total, 1e-12), variance, tail), 0.0)
    extra = np.where(mean > 1, mean, 0.0) / 2  # where every row was drawn nothing can have been overlooked
    high = np.where(
        total + extra > 0, quantile(np.maximum(total + extra, 1e-12), variance + mean * extra, 1 - tail), 0.0
    )
    high = np.where(answered > 0, high, out_of)
    return _clipped(total, low, high, ((a.weight > 0) * hit).sum(0), out_of)


def _clipped(mid: Floats, low: Floats, high: Floats, least: Floats, most: Floats) -> Part:
    most = np.maximum(most, least)
    low, high = np.clip(low, least, most), np.clip(high, least, most)
    return Part(np.clip(mid, low, high), low, high)
