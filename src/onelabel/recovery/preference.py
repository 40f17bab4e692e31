"""Whether some classes are named before others: only rows whose labels are all known can show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelabel.recovery.summary import counted


@dataclass(frozen=True)
class NamingTest:
    """Were the observed labels of audited rows drawn fairly from their positives?

    Attributes:
        rows: audited rows with several positives, one of which was observed.
        statistic: Σ z² over classes. probability: of one at least as large under a fair draw.
        first, last: classes named more (less) often than a fair draw names them: how often, and the expectation.
    """

    rows: int
    statistic: float
    probability: float
    first: tuple[tuple[str, int, float], ...]
    last: tuple[tuple[str, int, float], ...]

    def to_json(self) -> dict[str, Any]:
        """Plain numbers."""
        return asdict(self)

    def __str__(self) -> str:
        if self.probability > 0.01:
            rows = counted(self.rows, "audited row with several labels shows", "audited rows with several labels show")
            return f"naming: {rows} no preference (p = {self.probability:.2g})"
        told = [f"{name} was named {n} times of {e:.1f} expected" for name, n, e in (*self.first[:2], *self.last[:2])]
        return f"naming is not a fair draw (p = {self.probability:.2g}): {'; '.join(told)}"


def naming_test(
    observed: NDArray[np.int8], answers: NDArray[np.int8], names: Sequence[str], *, repeats: int = 2000, seed: int = 0
) -> NamingTest | None:
    """Test that o is uniform among a row's positives Y, class by class, against draws that are.

    z_l = Σ_rows (1[o=l] − 1/|Y|) / √Σ (1/|Y|)(1 − 1/|Y|), over rows with l in Y and |Y| > 1. None without such rows.

    Args:
        observed, answers: of the audited rows, n×L. Rows with an unanswered entry, or whose observed label the audit
            contradicts, are left out.
    """
    y = answers > 0
    count = y.sum(1)
    use = (count > 1) & ((observed > 0).sum(1) == 1) & (answers != 0).all(1) & ((observed > 0) & y).any(1)
    if not use.any():
        return None
    y, named = y[use], (observed[use] > 0).argmax(1)
    share = y / y.sum(1, keepdims=True)
    expected, spread = share.sum(0), np.sqrt((share * (1 - share)).sum(0))
    there = spread > 0

    def scores(chosen: NDArray[np.int64]) -> NDArray[np.float64]:
        hits = np.bincount(chosen, minlength=y.shape[1])
        out: NDArray[np.float64] = (hits - expected)[there] / spread[there]
        return out

    z = scores(named)
    found = float((z**2).sum())
    rng, edges, last = np.random.default_rng(seed), share.cumsum(1), y.shape[1] - 1
    fair = (scores(np.minimum((rng.random((len(y), 1)) > edges).sum(1), last)) for _ in range(repeats))
    chance = (1 + sum(float((each**2).sum()) >= found - 1e-9 for each in fair)) / (repeats + 1)
    hits = np.bincount(named, minlength=y.shape[1])
    kind = np.flatnonzero(there).tolist()
    lines = [(str(names[i]), int(hits[i]), float(expected[i])) for i in kind]
    order = np.argsort(-z, kind="stable")
    first, least = ([lines[i] for i in order if z[i] > 2], [lines[i] for i in order[::-1] if z[i] < -2])
    return NamingTest(int(use.sum()), found, chance, tuple(first), tuple(least))
