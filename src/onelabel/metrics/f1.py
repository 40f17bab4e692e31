"""Precision, recall, F1, and the thresholds that make it best."""

from __future__ import annotations

from typing import Any, NamedTuple

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


class PrecisionRecall(NamedTuple):
    """Overall (O: counts pooled) and per class (C: mean over classes) precision, recall and F1 = 2·P·R / (P + R)."""

    op: Any
    or_: Any
    of1: Any
    cp: Any
    cr: Any
    cf1: Any


def precision_recall(
    scores: Array,
    true: Array,
    *,
    threshold: float | Array = 0.5,
    top: int | None = None,
    mask: Array | None = None,
) -> PrecisionRecall:
    """OP, OR, OF1, CP, CR and CF1, as papers on multi-label pictures print them.

    A precision or recall of nothing (a class never predicted, or without positives) is 0 and counts in the mean. CF1 is
    that of the mean precision and recall; `f1_score` of "macro" is the mean of the classes' own.

    Args:
        threshold: one number or one per class, (L,) or (..., L).
        top: instead, every row's `top` best labels are predicted ("top-3"); of equal scores the first class.
        mask: entries to count, shaped as `true`.
    """
    inputs = check(scores, true, mask, stack=True)
    if top is not None:
        classes = inputs.scores.shape[-1]
        if not 1 <= top <= classes:
            raise ValueError(f"top is {top}; expected 1 to {classes}, the number of classes")
        order = torch.sort(inputs.scores, dim=-1, descending=True, stable=True).indices[..., :top]
        chosen = torch.zeros_like(inputs.scores).scatter_(-1, order, 1.0)
        inputs, threshold = inputs._replace(scores=chosen), 0.5
    hit, over, miss, _ = outcomes(inputs, threshold)
    parts = []
    for counts in ([x.sum(-1, keepdim=True) for x in (hit, over, miss)], [hit, over, miss]):
        right, wrong, missed = counts
        p, r = (ratio(right, right + other, 0.0).mean(-1) for other in (wrong, missed))
        parts += [p, r, torch.where(p + r > 0, 2 * p * r / (p + r).clamp(min=1e-300), 0.0)]
    return PrecisionRecall(*(inputs.give(part) for part in parts))


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
