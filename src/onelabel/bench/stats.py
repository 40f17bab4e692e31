"""Statistics over seeds: mean and spread, paired tests, Holm's correction; and which setting of a grid is taken."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onelabel.bench.results import Row
from onelabel.system import need

#: A setting that is further behind the best on validation with one seed is not run with more.
BEHIND = 1.0


@dataclass(frozen=True)
class Cell:
    """All seeds (and draws) of one setting."""

    rows: tuple[Row, ...]

    def values(self, metric: str) -> dict[tuple[str, int], float]:
        """A metric by draw and seed."""
        found = {(row.draw, row.seed): getattr(row, metric) for row in self.rows}
        return {key: float(value) for key, value in found.items() if value is not None}

    def mean(self, metric: str) -> float | None:
        values = list(self.values(metric).values())
        return statistics.fmean(values) if values else None

    def std(self, metric: str) -> float | None:
        """Of the sample; None for fewer than two."""
        values = list(self.values(metric).values())
        return statistics.stdev(values) if len(values) > 1 else None

    def text(self, metric: str) -> str:
        """mean ± std, or a dash."""
        mean, std = self.mean(metric), self.std(metric)
        if mean is None:
            return "–"
        return f"{mean:.2f}" + (f" ± {std:.2f}" if std is not None else "")


def spread(found: Sequence[Cell], metric: str = "test_map") -> float:
    """The standard deviation over seeds, pooled over settings; 0 where none has two seeds."""
    squares, freedom = 0.0, 0
    for cell in found:
        values = list(cell.values(metric).values())
        if len(values) > 1:
            squares += statistics.variance(values) * (len(values) - 1)
            freedom += len(values) - 1
    return math.sqrt(squares / freedom) if freedom else 0.0


def cells(rows: Sequence[Row]) -> list[Cell]:
    """Finished runs grouped by everything but seed and draw."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.done:
            what = [row.dataset, row.label, row.mode, row.protocol, row.fraction, row.hyper, row.settings]
            found[json.dumps([*what, row.supervision], sort_keys=True, default=str)].append(row)
    return [Cell(tuple(sorted(members, key=lambda r: (r.draw, r.seed)))) for members in found.values()]


def in_reach(found: Sequence[Cell]) -> list[Cell]:
    """The settings that may still win a search: at most `BEHIND` points of validation mAP behind the best of them.

    On the seeds that all have; where they have none in common, all are.
    """
    values = [cell.values("validation_map") for cell in found]
    shared = sorted(set(values[0]).intersection(*values)) if values else []
    means = [statistics.fmean(each[key] for key in shared) if shared else 0.0 for each in values]
    return [cell for cell, mean in zip(found, means, strict=True) if mean >= max(means) - BEHIND]


def chosen(rows: Sequence[Row]) -> Cell | None:
    """The setting with the best mean validation mAP: what a search takes.

    Settings are compared on the seeds that at least half of those `in_reach` have, so that a seed which only one of
    them was run with neither helps nor hinders it; one without all of those seeds is unfinished and cannot win.
    """
    found = cells(rows)
    values = [cell.values("validation_map") for cell in found]
    near = [cell.values("validation_map") for cell in in_reach(found)]
    every = {key for each in near for key in each}
    common = {key for key in every if 2 * sum(key in each for each in near) >= len(near)}
    whole = [i for i, each in enumerate(values) if common <= each.keys()] or range(len(found))
    best, taken = -math.inf, found[0] if found else None
    for i in whole:
        mine = [value for key, value in values[i].items() if key in common]
        if mine and statistics.fmean(mine) > best:
            best, taken = statistics.fmean(mine), found[i]
    return taken


def paired_p(one: Mapping[Any, float], other: Mapping[Any, float]) -> float | None:
    """Two-sided paired t-test over the seeds that both have; None for fewer than two, or no difference in spread."""
    keys = sorted(set(one) & set(other))
    if len(keys) < 2:
        return None
    first, second = [one[k] for k in keys], [other[k] for k in keys]
    if len({round(a - b, 12) for a, b in zip(first, second, strict=True)}) == 1:
        return None
    return float(need("scipy.stats", "bench").ttest_rel(first, second).pvalue)


def gap(cell: Cell, base: Cell | None, metric: str) -> str:
    """The difference to a baseline, for a table."""
    mine, other = cell.mean(metric), base.mean(metric) if base else None
    return "–" if mine is None or other is None else f"{mine - other:+.2f}".replace("-", "−")


def p_text(value: float | None) -> str:
    """A p-value for a table."""
    return "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down adjustment; None (not tested) stays None and does not count."""
    tested = sorted((value, i) for i, value in enumerate(values) if value is not None)
    adjusted: list[float | None] = [None] * len(values)
    worst = 0.0
    for rank, (value, i) in enumerate(tested):
        worst = max(worst, min(1.0, value * (len(tested) - rank)))
        adjusted[i] = worst
    return adjusted


@dataclass(frozen=True)
class Agreement:
    """Whether ours orders pairs of methods as a paper does."""

    pairs: int
    agree: int
    against: tuple[tuple[str, str, float, float], ...]  #: better in the paper, worse, its difference, ours


def orderings(ours: Mapping[str, float], theirs: Mapping[str, float], *, least: float = 0.5) -> Agreement:
    """Compare all pairs whose published difference is at least `least` points; smaller ones say nothing."""
    names = [name for name in theirs if name in ours]
    pairs = agree = 0
    against = []
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            better, worse = (a, b) if theirs[a] > theirs[b] else (b, a)
            gap = theirs[better] - theirs[worse]
            if gap < least:
                continue
            pairs += 1
            mine = ours[better] - ours[worse]
            agree += mine > 0
            if mine <= 0:
                against.append((better, worse, gap, mine))
    return Agreement(pairs, agree, tuple(sorted(against, key=lambda x: x[3])))
