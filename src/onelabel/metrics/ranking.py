"""Metrics of the order of the classes of each example."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onelabel.metrics._arrays import Array, Inputs, check, wide
from onelabel.metrics._outcomes import ratio
from onelabel.metrics._sorting import Ranked, per_example
from onelabel.metrics.precision import ranked_average_precision


def precision_at_k(scores: Array, true: Array, k: int, *, mask: Array | None = None) -> Any:
    """The mean over examples of the share of positives among the k highest scores.

    Scores tied at the k-th place share what is left of it equally, so the result is the expectation under
    random breaking of ties. With a mask an example of fewer than k known entries divides by their number;
    one of none is left out.
    """
    inputs = check(scores, true, mask, stack=True)
    hits, size = _hits_at_k(inputs, k)
    return inputs.give(_mean_where(hits / size.clamp(min=1), size > 0))


def recall_at_k(scores: Array, true: Array, k: int, *, mask: Array | None = None) -> Any:
    """The mean over examples of the share of their positives that is among the k highest scores.

    Ties are shared as in `precision_at_k`. Examples without positives have no recall and are left out.
    """
    inputs = check(scores, true, mask, stack=True)
    hits, _ = _hits_at_k(inputs, k)
    positives = _known(inputs.true, inputs).sum(-1).expand_as(hits)
    return inputs.give(_mean_where(hits / positives.clamp(min=1), positives > 0))


def one_error(scores: Array, true: Array, *, mask: Array | None = None) -> Any:
    """The share of examples whose highest-scored class is not positive: 1 − precision@1."""
    return 1 - precision_at_k(scores, true, 1, mask=mask)


def ranking_loss(scores: Array, true: Array, *, mask: Array | None = None) -> Any:
    """The share of (positive, negative) pairs of an example in the wrong order, averaged over examples.

        |{(i, j): y_i = 1, y_j = 0, s_i ≤ s_j}| / (|y|·(L − |y|))

    A tie is wrong and an example without a pair costs 0, as in scikit-learn's `label_ranking_loss`. One sort
    per example: no L×L table.
    """
    inputs = check(scores, true, mask, stack=True)
    return inputs.give(per_example(inputs, _ranking_loss).mean(-1))


def _ranking_loss(ranked: Ranked) -> Tensor:
    hits, added = ranked.thresholds()
    wrong = (added * (_count(hits) - hits)).sum(1)
    positives = hits[:, -1]
    return ratio(wrong, positives * (ranked.size[:, 0] - positives), 0.0)


def coverage_error(scores: Array, true: Array, *, mask: Array | None = None) -> Any:
    """How far down the ranking all positives of an example are found, averaged over examples.

        max_{i: y_i = 1} |{j: s_j ≥ s_i}|

    0 for an example without positives, as in scikit-learn's `coverage_error`; at best it is the mean of |y|.
    """
    inputs = check(scores, true, mask, stack=True)
    return inputs.give(per_example(inputs, _coverage).mean(-1))


def _coverage(ranked: Ranked) -> Tensor:
    hits, added = ranked.thresholds()
    return torch.where(added > 0, _count(hits), 0).amax(1).to(wide(hits.device))


def label_ranking_average_precision(scores: Array, true: Array, *, mask: Array | None = None) -> Any:
    """The average precision of each example's ranking of the classes, averaged over examples.

    An example without positives counts 1, as in scikit-learn's `label_ranking_average_precision_score`.
    """
    inputs = check(scores, true, mask, stack=True)
    return inputs.give(per_example(inputs, lambda ranked: ranked_average_precision(ranked, 1.0)).mean(-1))


def _count(like: Tensor) -> Tensor:
    return torch.arange(1, like.shape[1] + 1, device=like.device)


def _known(value: Tensor, inputs: Inputs) -> Tensor:
    return value if inputs.mask is None else value & inputs.mask


def _hits_at_k(inputs: Inputs, k: int) -> tuple[Tensor, Tensor]:
    """The (expected) positives among each example's k highest scores, and how many scores those are."""
    scores = inputs.scores
    if not 1 <= k <= scores.shape[-1]:
        raise ValueError(f"k is {k}; expected 1 to {scores.shape[-1]}, the number of classes")
    if inputs.mask is None:
        size = torch.full(scores.shape[:-1], k, device=scores.device)
        ranked = scores
    else:
        size = inputs.mask.sum(-1).clamp(max=k).expand(scores.shape[:-1])
        ranked = torch.where(inputs.mask, scores, -torch.inf)
    last = ranked.topk(k, dim=-1).values[..., -1:]
    above, tied = _known(scores > last, inputs), _known(scores == last, inputs)
    left = size - above.sum(-1)
    share = ratio((tied & inputs.true).sum(-1), tied.sum(-1), 0.0)
    return (above & inputs.true).sum(-1) + left * share, size


def _mean_where(value: Tensor, counts: Tensor) -> Tensor:
    return torch.where(counts, value, 0).sum(-1) / counts.sum(-1)
