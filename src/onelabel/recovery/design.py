"""A stratified sample: totals and their variances."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Design:
    """The sample: strata and their sizes, and how totals and variances follow."""

    stratum: NDArray[np.int64]
    size: Floats
    drawn: Floats

    def total(self, values: Floats) -> Floats:
        """Σ_h N_h·mean_h over the first axis."""
        weight = (self.size / self.drawn)[self.stratum]
        out: Floats = np.tensordot(weight, values, 1)
        return out

    def variance(self, values: Floats) -> float:
        """Of the total of n values, Σ_h N_h²(1−f_h)s_h²/n_h.

        A stratum of which one row was drawn (out of several) takes the variance over all rows.
        """
        variance = 0.0
        everywhere = float(values.var(ddof=1)) if len(values) > 1 else 0.0
        for h in range(len(self.size)):
            n, rows = float(self.drawn[h]), float(self.size[h])
            s2 = float(values[self.stratum == h].var(ddof=1)) if n > 1 else everywhere
            variance += rows**2 * (1 - n / rows) * s2 / n
        return variance
