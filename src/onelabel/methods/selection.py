"""Choosing the lowest entries by a threshold: no order of all of them, and nothing that waits for the host."""

from __future__ import annotations

import torch
from torch import Tensor

#: Entries looked at together: what is kept of them beside the scores takes some ten bytes each.
BLOCK = 1 << 28


def lowest(scores: Tensor, eligible: Tensor, count: Tensor, *, most: int | None = None, dim: int = -2) -> Tensor:
    """Where the `count` lowest of the eligible scores along `dim` are: a mask.

    Ties go to the entry that comes first; where fewer are eligible than `count` all of them are taken. `count` (the
    scores' shape without `dim`) stays on the device; `most`, a number no count exceeds, lets the threshold be found
    among that many instead of all (`torch.topk`).

    The threshold is the count-th lowest score; what lies under it is taken, and of what equals it the first ones.
    """
    size = scores.shape[dim]
    most = size if most is None else min(most, size)
    if not most or not scores.numel():
        return torch.zeros_like(eligible)
    width = max(BLOCK // max(scores[..., :1].numel(), 1), 1)
    if dim == -1 or width >= scores.shape[-1]:
        return _lowest(scores, eligible, count, most, dim)
    chosen = torch.zeros_like(eligible)
    for at in range(0, scores.shape[-1], width):
        part = (..., slice(at, at + width))
        chosen[part] = _lowest(scores[part], eligible[part], count[part], most, dim)
    return chosen


def _lowest(scores: Tensor, eligible: Tensor, count: Tensor, most: int, dim: int) -> Tensor:
    x = scores.masked_fill(~eligible, torch.inf)
    count = count.unsqueeze(dim).long()
    if most < x.shape[dim]:
        ordered = x.topk(most, dim=dim, largest=False).values
    else:
        ordered = x.sort(dim=dim).values
    threshold = ordered.gather(dim, (count - 1).clamp(0, most - 1))
    under, equal = x < threshold, x == threshold
    first = equal.cumsum(dim) <= count - under.sum(dim, keepdim=True)
    return (under | (equal & first)) & eligible & (count > 0)
