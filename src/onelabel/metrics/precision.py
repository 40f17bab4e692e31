"""Average precision."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from onelabel.metrics._arrays import Array, Inputs, check, on_host, wide
from onelabel.metrics._sorting import Ranked, by_class, rank, stacked

Empty = Literal["zero", "skip", "nan"]


def average_precision(
    scores: Array, true: Array, *, mask: Array | None = None, empty: Empty = "zero", micro: bool = False
) -> Any:
    """Average precision of every class.

        AP = Σ_t (R_t − R_{t−1}) · P_t

    over the distinct scores t from high to low, with precision P_t = TP/(TP+FP) and recall R_t = TP/(TP+FN)
    of the entries scoring at least t. Tied scores are one step, as in scikit-learn's `average_precision_score`,
    so the result does not depend on the order of the rows. Only the scores' order counts: logits will do.

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
    if empty not in ("zero", "skip", "nan"):
        raise ValueError(f"empty is {empty!r}; expected 'zero', 'skip' or 'nan'")
    inputs = check(scores, true, mask, stack=True)
    return inputs.give(_average_precision(pooled(inputs) if micro else inputs, empty))


def mean_average_precision(
    scores: Array, true: Array, *, mask: Array | None = None, empty: Empty = "zero", micro: bool = False
) -> Any:
    """The mean of `average_precision` over classes (mAP), one number a model.

    `empty="zero"` counts a class without positives as 0, `"skip"` leaves it out of the mean (NaN where no class
    is left), `"nan"` makes the mean NaN. `micro=True` ranks all entries together instead.
    """
    if empty not in ("zero", "skip", "nan"):
        raise ValueError(f"empty is {empty!r}; expected 'zero', 'skip' or 'nan'")
    inputs = check(scores, true, mask, stack=True)
    each = _average_precision(pooled(inputs) if micro else inputs, empty)
    return inputs.give(each.nanmean(-1) if empty == "skip" else each.mean(-1))


def pooled(inputs: Inputs) -> Inputs:
    """All entries of a model as one class."""
    flat = [None if x is None else x.flatten(-2).unsqueeze(-1) for x in inputs[:3]]
    return Inputs(flat[0], flat[1], flat[2], inputs.numpy)  # type: ignore[arg-type]


def _average_precision(inputs: Inputs, empty: Empty) -> Tensor:
    shape = inputs.scores.shape
    inputs = stacked(inputs)
    scores = inputs.scores
    out = torch.empty(scores.shape[0], scores.shape[2], dtype=wide(scores.device), device=scores.device)
    for models, classes, s, y, m in by_class(inputs):
        ap = ranked_average_precision(rank(s, y, m), "nan" if empty == "skip" else empty)
        if not on_host(scores):
            ap = torch.where(s.isnan().any(1), torch.nan, ap)
        part = out[models, classes]
        part.copy_(ap.view(part.shape))
    return out.view(*shape[:-2], shape[-1])


def ranked_average_precision(ranked: Ranked, empty: Empty) -> Tensor:
    """AP of rows in descending order of score."""
    label, last, _ = ranked
    dtype = wide(label.device)
    hits = label.cumsum(1)
    count = torch.arange(1, label.shape[1] + 1, device=label.device)
    # Only the end of a run of ties is a threshold; it adds the positives since the threshold before it.
    before = torch.where(last, hits, 0).cummax(1).values[:, :-1]
    added = hits.clone()
    added[:, 1:] -= before
    area = torch.where(last, (added * hits).to(dtype) / count, 0).sum(1)
    positives = hits[:, -1]
    return torch.where(positives > 0, area / positives.clamp(min=1), 0.0 if empty == "zero" else torch.nan)
