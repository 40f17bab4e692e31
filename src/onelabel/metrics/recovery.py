"""How well the labels that were never observed come back."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch

from onelabel.metrics._arrays import Array, Average, average_of, check, choice, ternary
from onelabel.metrics._outcomes import Outcomes, outcomes, ratio
from onelabel.metrics.precision import Empty, average_precision


def label_recovery_ap(
    scores: Array,
    true: Array,
    observed: Array,
    *,
    entries: Literal["all", "unknown"] = "all",
    average: Literal["macro"] | None = "macro",
    empty: Empty = "zero",
) -> Any:
    """Average precision of the training set's scores against its true labels.

    ROLE, Table 2: "training set MAP for multi-label predictions evaluated with respect to the full ground truth
    labels". It ranks all entries, the observed ones among them, which is the default here.
    `entries="unknown"` ranks the unknown ones only: what was learnt, without what was given.

    Args:
        scores: (N, L) or (..., N, L): the model's predictions, or a method's label estimates.
        true: 0/1, the full labels.
        observed: +1, 0, −1, what training saw.
        average: "macro" is the mean over classes (the table), None gives every class.
        empty: what a class without positives counts: see `mean_average_precision`.
    """
    choice("entries", entries, ("all", "unknown"))
    choice("average", average, ("macro", None))
    inputs = check(scores, true, stack=True)
    unknown = ternary(observed, inputs.scores) == 0
    mask = unknown if entries == "unknown" else None
    each = average_precision(inputs.scores, inputs.true, mask=mask, empty=empty)
    return inputs.give(average_of(each, average, skip=empty == "skip"))


class PredictiveValues(NamedTuple):
    """How often the positive and the negative predictions are right."""

    ppv: Any
    npv: Any


def ppv_npv(
    scores: Array,
    true: Array,
    tau: float | Array,
    *,
    mask: Array | None = None,
    average: Average = "macro",
) -> PredictiveValues:
    """Positive and negative predictive value at τ: PPV = TP/(TP+FP), NPV = TN/(TN+FN), positive where p > τ.

    LASD, Appendix A.3: per class, then averaged over classes ("macro"); there on the test set. To judge pseudo-
    labels on a training set pass `mask=observed == 0`. A class without predictions of a kind has no value of
    that kind: NaN with `average=None`, left out of the mean.
    """
    choice("average", average, ("micro", "macro", None))
    inputs = check(scores, true, mask, stack=True)
    counts = outcomes(inputs, tau, name="tau")
    if average == "micro":
        counts = Outcomes(*(x.sum(-1, keepdim=True) for x in counts))
    ppv = ratio(counts.hit, counts.hit + counts.over, torch.nan)
    npv = ratio(counts.right, counts.right + counts.miss, torch.nan)
    return PredictiveValues(
        inputs.give(average_of(ppv, average, skip=True)), inputs.give(average_of(npv, average, skip=True))
    )
