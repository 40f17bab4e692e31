"""Hamming loss, plain and cost-sensitive."""

from __future__ import annotations

from typing import Any

import torch

from onelabel.metrics._arrays import Array, check
from onelabel.metrics._outcomes import outcomes, ratio


def hamming_loss(scores: Array, true: Array, *, threshold: float | Array = 0.5, mask: Array | None = None) -> Any:
    """The share of entries predicted wrongly: (FP + FN) / (TP + FP + FN + TN)."""
    inputs = check(scores, true, mask, stack=True)
    counts = [x.sum(-1) for x in outcomes(inputs, threshold)]
    return inputs.give(ratio(counts[1] + counts[2], counts[0] + counts[1] + counts[2] + counts[3], torch.nan))


def cost_sensitive_hamming_loss(
    scores: Array,
    true: Array,
    *,
    threshold: float | Array = 0.5,
    costs: tuple[float, float] | None = None,
    mask: Array | None = None,
) -> Any:
    """Hamming loss whose two errors cost differently, averaged over examples.

        Σ_{k: y=1} 1[ŷ=0] / |y|  +  Σ_{k: y=0} 1[ŷ=1] / (L − |y|)

    LASD, Eq. 12 (whose indicators are printed the other way round), from 0 to 2; a sum over nothing is 0.
    `costs=(miss, false_alarm)` takes fixed costs per entry instead: Σ cost / L.
    """
    inputs = check(scores, true, mask, stack=True)
    hit, over, miss, right = outcomes(inputs, threshold, dim=-1)
    if costs is None:
        each = ratio(miss, hit + miss, 0.0) + ratio(over, over + right, 0.0)
    else:
        each = ratio(costs[0] * miss + costs[1] * over, hit + over + miss + right, 0.0)
    return inputs.give(each.mean(-1))
