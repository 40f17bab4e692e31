"""What the pass over the rows adds up."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelabel.recovery.correction import Correction
from onelabel.recovery.thresholds import Histogram


class Totals:
    """Expected missing positives, their chance, and the gradients an audit's correction wants, per class."""

    def __init__(self, classes: int) -> None:
        self.histogram = Histogram(classes)
        self.missing, self.spread = np.zeros(classes), np.zeros(classes)
        self.gradient = np.zeros((classes, 2))

    def add(
        self, q: NDArray[Any], mended: NDArray[Any], unknown: NDArray[np.bool_], correction: Correction | None
    ) -> None:
        self.histogram.add(mended, unknown)
        alone = np.where(unknown, mended, 0).astype(np.float64)
        self.missing += alone.sum(0)
        self.spread += (alone * (1 - alone)).sum(0)
        if correction is not None:
            self.gradient += correction.gradient(np.where(unknown, q, 0.5), alone)


def total_variance(correction: Correction, gradient: NDArray[np.float64]) -> float:
    """Of all classes' expected positives together."""
    if correction.covariance is None:
        return 0.0
    g = np.concatenate([gradient.sum(0), gradient[:, 1]])
    return float(g @ correction.covariance @ g)
