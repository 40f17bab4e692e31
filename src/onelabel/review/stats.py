"""Estimates shown while reviewing: plain functions of counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

Z = 1.959963984540054  # 95%


class Estimate(NamedTuple):
    """A share with its 95% interval; `covered` is the part of the population the answers speak for."""

    value: float
    low: float
    high: float
    covered: float = 1.0


def wilson(successes: int, trials: int) -> Estimate | None:
    """Wilson's score interval of a share (Wilson, 1927); None without trials."""
    if trials <= 0:
        return None
    p, z2 = successes / trials, Z * Z
    centre = (p + z2 / (2 * trials)) / (1 + z2 / trials)
    half = Z / (1 + z2 / trials) * math.sqrt(p * (1 - p) / trials + z2 / (4 * trials * trials))
    return Estimate(p, max(0.0, min(p, centre - half)), min(1.0, max(p, centre + half)))


def stratified(strata: Sequence[tuple[int, int, int]]) -> Estimate | None:
    """The share of successes in a population of strata (size, answered, successes), each answered in part.

    Σ W_h·m_h over the strata with answers, W_h their size: the answered part is known, of the rest the Beta(1, 1)
    posterior gives mean (y+1)/(n+2) and variance m(1−m)/(n+3), the rest's own binomial spread included.
    """
    known = [(size, n, y) for size, n, y in strata if n > 0]
    total = sum(size for size, _, _ in strata)
    inside = sum(size for size, _, _ in known)
    if not inside:
        return None
    mean = variance = 0.0
    for size, n, y in known:
        rest, m = size - n, (y + 1) / (n + 2)
        mean += y + rest * m
        variance += m * (1 - m) / (n + 3) * rest * rest + rest * m * (1 - m) * (n + 2) / (n + 3)
    half = Z * math.sqrt(variance)
    return Estimate(mean / inside, max(0.0, (mean - half) / inside), min(1.0, (mean + half) / inside), inside / total)


def kappa(table: Mapping[tuple[int, int], int]) -> tuple[int, float, float | None]:
    """Items, agreement and Cohen's κ from counts of (first person's answer, second person's answer).

    κ = (p_o − p_e) / (1 − p_e), p_e from the two people's own margins (Cohen, 1960); None where p_e is 1.
    """
    n = sum(table.values())
    if not n:
        return 0, 0.0, None
    words = {word for pair in table for word in pair}
    agreed = sum(table.get((word, word), 0) for word in words) / n
    first = {w: sum(count for (a, _), count in table.items() if a == w) / n for w in words}
    second = {w: sum(count for (_, b), count in table.items() if b == w) / n for w in words}
    chance = sum(first[w] * second[w] for w in words)
    return n, agreed, None if chance >= 1 else (agreed - chance) / (1 - chance)
