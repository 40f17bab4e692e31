"""Per-class thresholds from calibrated probabilities, read off histograms so that N×L is never held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelabel.recovery.correction import logit, sigmoid

Floats = NDArray[np.float64]
BINS, EDGE = 700, 7.0  # bins of 0.02 in log odds from −7 to 7
#: Expected of the labels that `recover` adds unless told otherwise: docs/recovery.md has what is true of them.
PRECISION = 0.9


class Histogram:
    """Counts and sums of probabilities by class and bin of log odds; unknown entries only."""

    def __init__(self, num_classes: int) -> None:
        self.count = np.zeros((num_classes, BINS + 2))
        self.sum = np.zeros((num_classes, BINS + 2))
        self.square = np.zeros((num_classes, BINS + 2))  # Σ q(1−q)

    def add(self, q: NDArray[Any], unknown: NDArray[np.bool_]) -> None:
        """A piece of N×L probabilities."""
        classes = q.shape[1]
        place = np.clip(np.floor((logit(q) + EDGE) * (BINS / (2 * EDGE))) + 1, 0, BINS + 1).astype(np.int64)
        flat = (place + np.arange(classes) * (BINS + 2))[unknown]
        value = q[unknown].astype(np.float64)
        size = classes * (BINS + 2)
        self.count += np.bincount(flat, minlength=size).reshape(classes, -1)
        self.sum += np.bincount(flat, value, size).reshape(classes, -1)
        self.square += np.bincount(flat, value * (1 - value), size).reshape(classes, -1)

    @property
    def edges(self) -> Floats:
        """The probability at which each bin begins."""
        inner = sigmoid(-EDGE + np.arange(BINS + 1) * (2 * EDGE / BINS))
        return np.concatenate([[0.0], inner])

    @property
    def lean(self) -> Floats:
        """Σq(1−q)·logit q of entries in this bin or a higher one, L×bins."""
        centre = np.clip(-EDGE + (np.arange(BINS + 2) - 0.5) * (2 * EDGE / BINS), -EDGE, EDGE)
        out: Floats = np.cumsum((self.square * centre)[:, ::-1], 1)[:, ::-1]
        return out

    def above(self) -> tuple[Floats, Floats, Floats]:
        """Count, Σq and Σq(1−q) of entries in this bin or a higher one, L×bins."""
        return tuple(np.cumsum(x[:, ::-1], 1)[:, ::-1] for x in (self.count, self.sum, self.square))  # type: ignore


@dataclass(frozen=True)
class Thresholds:
    """Call an unknown entry present where its probability reaches `value` (inf: never).

    Attributes:
        value: L. called, expected_hits, spread, lean: how many entries that calls, Σq, Σq(1−q) and Σq(1−q)·logit q of
            them, per class; the last is what their hits change by where log odds are all too large by a factor.
        rule: in words.
    """

    value: Floats
    called: Floats
    expected_hits: Floats
    spread: Floats
    lean: Floats
    rule: str

    @property
    def precision(self) -> Floats:
        """Expected precision of the called entries; NaN where nothing is called."""
        return np.divide(self.expected_hits, self.called, out=np.full(len(self.called), np.nan), where=self.called > 0)


def choose_thresholds(histogram: Histogram, *, precision: float | None = None, floor: float = 0.0) -> Thresholds:
    """Thresholds for a target `precision`, else for the best expected F1 of each class, none below `floor`.

    F1: with calibrated q, E[TP] = Σ_{q≥t} q, so 2·Σ_{q≥t} q / (#{q≥t} + Σ q) is maximised. Precision: the lowest t
    whose called entries have mean q of at least the target; a class that never reaches it calls nothing.
    """
    if precision is not None and not 0 < precision <= 1:
        raise ValueError(f"precision must lie in (0, 1], got {precision!r}")
    count, hits, spread = histogram.above()
    edges = histogram.edges
    allowed = (count > 0) & (edges >= floor)
    if precision is None:
        f1 = np.where(allowed, 2 * hits / np.maximum(count + hits[:, :1], 1e-12), -1.0)
        # the highest threshold among the best: empty bins below it change nothing
        at = f1.shape[1] - 1 - np.argmax(f1[:, ::-1], 1)
        none = f1.max(1) <= 0
        rule = "best expected F1"
    else:
        good = allowed & (hits >= precision * count - 1e-9)
        at, none = np.argmax(good, 1), ~good.any(1)
        rule = f"expected precision of at least {precision:g}"
    rows = np.arange(len(count))
    value = np.where(none, np.inf, np.maximum(edges[at], floor))
    called, found, uncertain, lean = (np.where(none, 0.0, x[rows, at]) for x in (count, hits, spread, histogram.lean))
    return Thresholds(value, called, found, uncertain, lean, rule)
