"""Whether a probability of p is right p of the time."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch

from onelabel.metrics._arrays import Array, Average, Inputs, average_of, check, choice, probabilities, wide
from onelabel.metrics._bins import Totals, bin_totals, equal_bins, fixed_bins, pool_totals
from onelabel.metrics._outcomes import ratio
from onelabel.metrics._sorting import pooled

Binning = Literal["width", "mass"]
Norm = Literal["l1", "l2", "max"]


def calibration_error(
    scores: Array,
    true: Array,
    *,
    bins: int = 15,
    binning: Binning = "width",
    norm: Norm = "l1",
    average: Average = "micro",
    mask: Array | None = None,
) -> Any:
    """Expected calibration error of the probability of a positive.

        ECE = Σ_b n_b/n · |mean of y in b − mean of p in b|

    Naeini, Cooper and Hauskrecht, "Obtaining well calibrated probabilities using Bayesian binning" (2015).

    Args:
        scores: probabilities, (N, L) or (..., N, L).
        true: 0/1.
        bins: how many.
        binning: "width" cuts [0, 1] into equal intervals; "mass" (adaptive) gives every bin as many entries,
            per class, and keeps tied ones together.
        norm: "l1" as above; "l2" is the root of the mean square gap; "max" the largest gap (MCE).
        average: "micro" pools all entries, "macro" averages the classes, None gives every class.
        mask: entries to count, shaped as `true`; `mask=observed == 0` asks about the unknown ones.

    Returns:
        (...) or (..., L): NaN for a class with no entry inside the mask, left out of the mean.
    """
    choice("norm", norm, ("l1", "l2", "max"))
    choice("average", average, ("micro", "macro", None))
    inputs = _inputs(scores, true, mask)
    totals = _totals(inputs, bins, binning, pool=average == "micro")
    gap = ratio(totals.positives - totals.score, totals.entries, 0.0).abs()
    size = totals.entries.sum(-1)
    if norm == "max":
        each = torch.where(size > 0, gap.amax(-1), torch.nan)
    else:
        power = 2 if norm == "l2" else 1
        each = ratio((totals.entries * gap**power).sum(-1), size, torch.nan) ** (1 / power)
    return inputs.give(average_of(each, average, skip=True))


class Reliability(NamedTuple):
    """A reliability diagram: the entries of every bin, their mean probability and the share that is positive."""

    entries: Any
    confidence: Any
    frequency: Any


def reliability(
    scores: Array,
    true: Array,
    *,
    bins: int = 15,
    binning: Binning = "width",
    pool: bool = True,
    mask: Array | None = None,
) -> Reliability:
    """What `calibration_error` sums up: (..., bins) for all entries, or (..., L, bins) with `pool=False`.

    Empty bins have NaN confidence and frequency. "mass" bins run from the most confident to the least.
    """
    inputs = _inputs(scores, true, mask)
    totals = _totals(inputs, bins, binning, pool=pool)
    if pool:
        totals = Totals(*(x.squeeze(-2) for x in totals))
    confidence = ratio(totals.score, totals.entries, torch.nan)
    frequency = ratio(totals.positives, totals.entries, torch.nan)
    return Reliability(inputs.give(totals.entries), inputs.give(confidence), inputs.give(frequency))


def brier_score(scores: Array, true: Array, *, average: Average = "micro", mask: Array | None = None) -> Any:
    """The mean of (p − y)² over entries (Brier, 1950); `average` as in `calibration_error`."""
    choice("average", average, ("micro", "macro", None))
    inputs = _inputs(scores, true, mask)
    dtype = wide(inputs.scores.device)
    square = (inputs.scores.to(dtype) - inputs.true.to(dtype)) ** 2
    inside = torch.ones_like(inputs.true) if inputs.mask is None else inputs.mask
    total, size = torch.where(inside, square, 0).sum(-2), inside.expand(square.shape).sum(-2)
    if average == "micro":
        total, size = total.sum(-1, keepdim=True), size.sum(-1, keepdim=True)
    return inputs.give(average_of(ratio(total, size, torch.nan), average, skip=True))


def _inputs(scores: Array, true: Array, mask: Array | None) -> Inputs:
    inputs = check(scores, true, mask, stack=True)
    probabilities(inputs.scores)
    return inputs


def _totals(inputs: Inputs, bins: int, binning: Binning, *, pool: bool) -> Totals:
    choice("binning", binning, ("width", "mass"))
    if binning == "mass":
        return bin_totals(pooled(inputs) if pool else inputs, equal_bins(bins), bins)
    totals = bin_totals(inputs, fixed_bins(bins), bins)
    return pool_totals(totals) if pool else totals
