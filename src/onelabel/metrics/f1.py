"""F1 and the thresholds that make it best."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onelabel.metrics._arrays import Array, Average, average_of, check, choice, wide
from onelabel.metrics._outcomes import outcomes, ratio
from onelabel.metrics._sorting import Ranked, per_class, pooled


def f1_score(
    scores: Array,
    true: Array,
    *,
    threshold: float | Array = 0.5,
    average: Average = "macro",
    mask: Array | None = None,
) -> Any:
    """F1 = 2·TP / (2·TP + FP + FN), and 0 where there is neither a positive nor a positive prediction.

    Args:
        scores: (N, L) or (..., N, L); 0/1 predictions will do.
        true: 0/1, (N, L) or (..., N, L).
        threshold: one number or one per class, (L,) or (..., L); EM's Table 7 takes .5 for BCE and AN and
            .75 for EM.
        average: "macro" is the mean over classes, "micro" pools the counts, None gives every class.
        mask: entries to count, shaped as `true`.
    """
    choice("average", average, ("micro", "macro", None))
    inputs = check(scores, true, mask, stack=True)
    hit, over, miss, _ = outcomes(inputs, threshold)
    if average == "micro":
        hit, over, miss = (x.sum(-1, keepdim=True) for x in (hit, over, miss))
    each = ratio(2 * hit, 2 * hit + over + miss, 0.0)
    return inputs.give(average_of(each, average))


def best_thresholds(scores: Array, true: Array, *, mask: Array | None = None, micro: bool = False) -> Any:
    """Every class's threshold of highest F1 among all thresholds, for `score > threshold`.

    The threshold is halfway between the last score accepted and the next lower one; −inf where everything is
    best accepted, +inf for a class without positives. Of equal ones the highest is taken. `micro=True` finds
    one threshold for all classes; the result has a last dimension of 1. Found on held-out data or an audit:
    on the scores they were fitted to they flatter the model.
    """
    inputs = check(scores, true, mask, stack=True)
    return inputs.give(per_class(pooled(inputs) if micro else inputs, _best_threshold))


def _best_threshold(ranked: Ranked) -> Tensor:
    hits, _ = ranked.thresholds()
    length = hits.shape[1]
    positives = hits[:, -1:]
    count = torch.arange(1, length + 1, device=hits.device)
    score = torch.where(ranked.last, 2 * hits.to(wide(hits.device)) / (count + positives), -1.0)
    best = score.argmax(1, keepdim=True)
    value = ranked.scores().to(wide(hits.device))
    high, low = value.gather(1, best), value.gather(1, (best + 1).clamp(max=length - 1))
    middle = low + (high - low) / 2
    middle = torch.where((middle < high) & middle.isfinite(), middle, low)  # neighbours leave no room between
    middle = torch.where(best + 1 < ranked.size, middle, -torch.inf)
    return torch.where(positives > 0, middle, torch.inf).squeeze(1)
