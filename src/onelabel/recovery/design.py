"""A stratified sample: totals, their variances, and resampling."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from onelabel.labels.k import _student

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

    def variance(self, values: Floats) -> tuple[Floats, Floats]:
        """Of the total of n×… values, Σ_h N_h²(1−f_h)s_h²/n_h, and Satterthwaite's degrees of freedom.

        A stratum of which one row was drawn (out of several) takes the variance over all rows.
        """
        shape = values.shape[1:]
        variance, fourth = np.zeros(shape), np.zeros(shape)
        everywhere = values.var(0, ddof=1) if len(values) > 1 else np.zeros(shape)
        for h in range(len(self.size)):
            mine = self.stratum == h
            n, rows = float(self.drawn[h]), float(self.size[h])
            s2 = values[mine].var(0, ddof=1) if n > 1 else everywhere
            v = rows**2 * (1 - n / rows) * s2 / n
            variance += v
            fourth += v**2 / max(n - 1, 1)
        freedom = np.divide(variance**2, fourth, out=np.full(shape, 1e5), where=fourth > 0)
        return variance, freedom


@lru_cache(maxsize=4096)
def _t(level: float, freedom: int) -> float:
    return _student(level, max(freedom, 1))


def half_width(design: Design, values: Floats, level: float) -> float:
    """Half the interval of the total of n values, Student's."""
    variance, freedom = design.variance(values)
    return _t(level, int(freedom)) * math.sqrt(float(variance))


def bootstrap(design: Design, residual: Floats, base: Floats, repeats: int, seed: int) -> Floats:
    """Totals of `repeats` resamples, repeats×4×L: n_h−1 rows a stratum, rescaled for the finite population."""
    rng = np.random.default_rng(seed)
    weight = np.zeros((repeats, len(design.stratum)))
    for h in range(len(design.size)):
        mine = np.flatnonzero(design.stratum == h)
        n, rows = len(mine), float(design.size[h])
        if n == 1:
            weight[:, mine] = rows
            continue
        hits = rng.multinomial(n - 1, np.full(n, 1 / n), size=repeats) * (n / (n - 1))
        weight[:, mine] = (rows / n) * (1 + math.sqrt(1 - n / rows) * (hits - 1))
    return base + np.einsum("bn,tnl->btl", weight, residual)
