"""How sure a number is: the bootstrap over examples."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from onelabel.system import progress

Floats = NDArray[np.float64]
WORK = 400_000_000  #: entries looked at, at most: fewer repetitions where there are many


class Interval(NamedTuple):
    """A number and its 95% interval."""

    value: float
    low: float
    high: float


def repetitions(rows: int, classes: int, wanted: int = 1000) -> int:
    """As many bootstrap repetitions as are bearable, at least 100."""
    return max(100, min(wanted, WORK // max(rows * classes, 1)))


def bootstrap_map(
    scores: NDArray[np.floating], true: NDArray[np.integer], *, times: int | None = None, seed: int = 0
) -> Floats:
    """mAP of `times` resamples of the examples (with replacement), fractions.

    Each class is sorted once; a resample is a count per example, w, and with ties as one step

        AP = Σᵢ wᵢ yᵢ · (Σ_{j at or above i} wⱼ yⱼ) / (Σ_{j at or above i} wⱼ) / Σᵢ wᵢ yᵢ

    A class without positives in a resample is left out of its mean. Equal seeds and sizes draw equal resamples: of two
    models' results the difference is paired.
    """
    rows, classes = true.shape
    times = times or repetitions(rows, classes)
    rng = np.random.default_rng(seed)
    weights = np.stack([rng.multinomial(rows, np.full(rows, 1 / rows)) for _ in range(times)]).astype(np.int32)
    total, counted = np.zeros(times), np.zeros(times)
    with progress("bootstrap", classes) as advance:
        for c in range(classes):
            advance(1)
            if not true[:, c].any():
                continue
            order = np.argsort(-np.asarray(scores[:, c]), kind="stable")
            ranked, y = np.asarray(scores[order, c]), true[order, c] > 0
            last = np.searchsorted(-ranked, -ranked, side="right") - 1  # of each run of ties
            w = np.take(weights, order, axis=1)
            places = np.flatnonzero(y)
            at = last[places]
            mine = np.take(w, places, axis=1)
            hits = np.cumsum(mine, axis=1, dtype=np.int32)
            reached = np.take(hits, np.searchsorted(places, at, side="right") - 1, axis=1)
            share = reached / np.maximum(np.take(np.cumsum(w, axis=1, dtype=np.int32), at, axis=1), 1)
            positives = hits[:, -1]
            area = (mine * share).sum(1)
            total += np.where(positives > 0, area / np.maximum(positives, 1), 0.0)
            counted += positives > 0
    return total / np.maximum(counted, 1)


def interval(value: float, samples: Floats) -> Interval:
    """The bootstrap samples' 95% spread around a value, their own bias taken off.

    Repeated rows rank beside themselves and rare classes drop out of a resample, so that resampled mAPs lie too high.
    """
    low, high = np.percentile(samples, [2.5, 97.5]) - samples.mean()
    return Interval(float(value), float(value + low), float(value + high))
