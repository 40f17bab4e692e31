"""How far apart a model holds the positives and the negatives among what it was never told."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from onelabel.metrics._arrays import Array, Average, average_of, check, choice, probabilities, ternary, wide
from onelabel.metrics._bins import bin_edges, bin_totals, fixed_bins, pool_totals
from onelabel.metrics._outcomes import ratio
from onelabel.metrics._sorting import Ranked, per_class, pooled


def wasserstein(scores: Array, true: Array, observed: Array | None = None, *, average: Average = None) -> Any:
    """Wasserstein-1 distance between the scores of the true positives and of the true negatives.

        W = ∫ |F₊(t) − F₋(t)| dt

    with F₊ and F₋ the distribution functions of the scores of unknown entries that are positive and negative.
    EM takes it per class on the training set (Fig. 4a; `average=None`), GR over all classes together
    (Fig. 3a; "micro"). "macro" is the mean over classes. Exact, as `scipy.stats.wasserstein_distance`.

    Args:
        scores: (N, L) or (..., N, L), probabilities in the papers.
        true: 0/1.
        observed: +1, 0, −1; only its unknown entries count. None counts all.

    Returns:
        (..., L) or (...): NaN for a class without positives or without negatives, left out of the mean.
    """
    choice("average", average, ("micro", "macro", None))
    inputs = check(scores, true, stack=True)
    if observed is not None:
        inputs = inputs._replace(mask=ternary(observed, inputs.scores) == 0)
    each = per_class(pooled(inputs) if average == "micro" else inputs, _wasserstein)
    return inputs.give(average_of(each, average, skip=True))


def _wasserstein(ranked: Ranked) -> Tensor:
    hits = ranked.label.cumsum(1)[:, :-1]
    count = torch.arange(1, hits.shape[1] + 1, device=hits.device)
    positives = ranked.label.sum(1, keepdim=True)
    negatives = ranked.size - positives
    gap = (ratio(hits, positives, torch.nan) - ratio(count - hits, negatives, torch.nan)).abs()
    value = ranked.scores().to(wide(hits.device))
    step = torch.where(count < ranked.size, value[:, :-1] - value[:, 1:], 0)
    nothing = (positives == 0) | (negatives == 0)
    return torch.where(nothing[:, 0], torch.nan, (gap * step).sum(1))


class FalseNegativeShare(NamedTuple):
    """FN/(FN+TN) by confidence; `share` is NaN in an empty bin."""

    edges: Any
    share: Any
    entries: Any


def false_negative_share(
    scores: Array, true: Array, observed: Array, *, bins: int = 100, average: Average = "micro"
) -> FalseNegativeShare:
    """The share of true positives among the unknown entries, by the confidence the model gives them.

        FN / (FN + TN)

    in `bins` equal intervals of [0, 1], the last one closed: GR, Appendix, Fig. 5, on validation sets, all
    classes together ("micro"). It is the k(p) that GR's k̂ models. "macro" averages the classes that have
    entries in a bin, None gives every class.

    Args:
        scores: probabilities, (N, L) or (..., N, L).
        true: 0/1.
        observed: +1, 0, −1; only its unknown entries count.

    Returns:
        edges (bins+1,), share and entries (..., bins), or (..., L, bins) with `average=None`.
    """
    choice("average", average, ("micro", "macro", None))
    inputs = check(scores, true, stack=True)
    probabilities(inputs.scores)
    inputs = inputs._replace(mask=ternary(observed, inputs.scores) == 0)
    totals = bin_totals(inputs, fixed_bins(bins), bins)
    if average == "micro":
        totals = pool_totals(totals)
    share = ratio(totals.positives, totals.entries, torch.nan)
    entries = totals.entries
    if average is not None:
        share, entries = share.nanmean(-2), entries.sum(-2)
    edges = bin_edges(bins, inputs.scores.device)
    return FalseNegativeShare(inputs.give(edges), inputs.give(share), inputs.give(entries))
