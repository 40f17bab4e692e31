"""Entries sorted into bins of confidence, for all classes at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from onelabel.metrics._arrays import Inputs, wide
from onelabel.metrics._sorting import by_class, rank, running_max

Binned = tuple[Tensor, Tensor, Tensor, Tensor]  # bin, score, label, whether inside the mask: rows (R, N)
Binning = Callable[[Tensor, Tensor, Tensor | None], Binned]


class Totals(NamedTuple):
    """Per class and bin, (..., L, bins): the entries, their positives, and the sum of their scores."""

    entries: Tensor
    positives: Tensor
    score: Tensor


def check_bins(bins: int) -> int:
    if bins < 1:
        raise ValueError(f"bins is {bins}; expected at least 1")
    return bins


def bin_edges(bins: int, device: torch.device) -> Tensor:
    """0 … 1 in `bins` equal steps."""
    return torch.arange(check_bins(bins) + 1, device=device).to(wide(device)) / bins


def fixed_bins(bins: int) -> Binning:
    """Bins of equal width of [0, 1], closed below; the last is closed above too."""
    check_bins(bins)

    def assign(scores: Tensor, true: Tensor, mask: Tensor | None) -> Binned:
        value = scores.to(wide(scores.device))
        inner = bin_edges(bins, scores.device)[1:-1]
        index = torch.bucketize(value, inner, right=True)
        return index, value, true, torch.ones_like(true) if mask is None else mask

    return assign


def equal_bins(bins: int) -> Binning:
    """Bins of an equal number of each class's entries; a run of ties stays together, in its first entry's bin."""
    check_bins(bins)

    def assign(scores: Tensor, true: Tensor, mask: Tensor | None) -> Binned:
        ranked = rank(scores, true, mask)
        place = torch.arange(scores.shape[1], device=scores.device)
        first = torch.zeros_like(ranked.code)
        first[:, 1:] = torch.where(ranked.last[:, :-1], place[1:], 0)
        first = running_max(first)
        index = (first * bins // ranked.size.clamp(min=1)).clamp(max=bins - 1)
        inside = place < ranked.size
        value = torch.where(inside, ranked.scores().to(wide(scores.device)), 0)
        return index, value, ranked.label > 0, inside

    return assign


def bin_totals(inputs: Inputs, assign: Binning, bins: int) -> Totals:
    """Count every class's entries in its bins."""
    parts: tuple[list[Tensor], list[Tensor], list[Tensor]] = ([], [], [])
    for scores, true, mask in by_class(inputs):
        index, value, label, inside = assign(scores, true, mask)
        for part, weight in zip(parts, (inside, label & inside, torch.where(inside, value, 0)), strict=True):
            weight = weight if weight.is_floating_point() else weight.long()
            part.append(weight.new_zeros(len(scores), bins).scatter_add_(1, index, weight))
    shape = inputs.scores.shape
    return Totals(*(torch.cat(part).view(*shape[:-2], shape[-1], bins) for part in parts))


def pool_totals(totals: Totals) -> Totals:
    """The bins of all classes together, as one class."""
    return Totals(*(x.sum(-2, keepdim=True) for x in totals))
