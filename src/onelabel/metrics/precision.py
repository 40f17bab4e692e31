"""Average precision."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from onelabel.metrics._arrays import Array, Inputs, check, choice, wide
from onelabel.metrics._sorting import Ranked, per_class, pooled

Empty = Literal["zero", "skip", "nan"]


def average_precision(
    scores: Array, true: Array, *, mask: Array | None = None, empty: Empty = "zero", micro: bool = False
) -> Any:
    """Average precision of every class.

        AP = Σ_t (R_t − R_{t−1}) · P_t

    over the distinct scores t from high to low, with precision P_t = TP/(TP+FP) and recall R_t = TP/(TP+FN)
    of the entries scoring at least t. Tied scores are one step, as in scikit-learn's
    `average_precision_score`, so the result does not depend on the order of the rows. Only the scores' order
    counts: logits will do.

    Args:
        scores: (N, L), or (..., N, L) for a stack of models. Any floating type; compared exactly.
        true: 0/1, (N, L) for all models or (..., N, L).
        mask: entries to count, shaped as `true`; None counts all. `mask_from(observed)` gives the known ones.
        empty: a class without positives gets 0, as in ROLE's evaluation ("zero"), or NaN ("skip", "nan").
        micro: pool all entries into one ranking; the result has a last dimension of 1.

    Returns:
        (..., L), float64. A NaN score is an error on the CPU; on a GPU, where values are not checked, it makes
        its class NaN.
    """
    inputs = check(scores, true, mask, stack=True)
    return inputs.give(_average_precision(inputs, empty, micro))


def mean_average_precision(
    scores: Array, true: Array, *, mask: Array | None = None, empty: Empty = "zero", micro: bool = False
) -> Any:
    """The mean of `average_precision` over classes (mAP), one number a model.

    `empty="zero"` counts a class without positives as 0, `"skip"` leaves it out of the mean (NaN where no
    class is left), `"nan"` makes the mean NaN. `micro=True` ranks all entries together instead.
    """
    inputs = check(scores, true, mask, stack=True)
    each = _average_precision(inputs, empty, micro)
    return inputs.give(each.nanmean(-1) if empty == "skip" else each.mean(-1))


def _average_precision(inputs: Inputs, empty: Empty, micro: bool) -> Tensor:
    choice("empty", empty, ("zero", "skip", "nan"))
    nothing = 0.0 if empty == "zero" else torch.nan
    return per_class(pooled(inputs) if micro else inputs, lambda r: ranked_average_precision(r, nothing))


def ranked_average_precision(ranked: Ranked, nothing: float) -> Tensor:
    """AP of ranked rows, and `nothing` for a row without positives."""
    hits, added = ranked.thresholds()
    count = torch.arange(1, hits.shape[1] + 1, device=hits.device)
    area = ((added * hits).to(wide(hits.device)) / count).sum(1)
    positives = hits[:, -1]
    return torch.where(positives > 0, area / positives.clamp(min=1), nothing)
