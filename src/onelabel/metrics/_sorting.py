"""One sort for all classes at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from onelabel.metrics._arrays import CHUNK_DEVICE, CHUNK_HOST, Inputs, on_host


class Ranked(NamedTuple):
    """Labels, one row a class, from the highest score to the lowest; entries outside the mask come last."""

    label: Tensor
    """int64 (R, N): 1 positive, 0 negative or outside the mask."""
    last: Tensor
    """bool (R, N): the next score is lower, so a threshold can fall here."""
    code: Tensor
    """int64 (R, N): the scores as integers in ascending order; `scores_of` turns them back."""


def descending_code(scores: Tensor) -> Tensor:
    """Integers that ascend as the scores descend, equal exactly where the scores are equal.

    Scores of 32 bits or fewer give 0 … 2³²−1, float64 gives any int64; the greatest is kept free for entries
    outside the mask.
    """
    if scores.dtype == torch.float64:
        bits = (scores + 0.0).view(torch.int64)  # + 0.0 makes −0 equal to 0
        return ~(bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF))
    bits = (scores.float() + 0.0).view(torch.int32)
    return (~(bits ^ ((bits >> 31) & 0x7FFFFFFF))).long() + 0x80000000


def scores_of(code: Tensor, dtype: torch.dtype) -> Tensor:
    """The inverse of `descending_code`."""
    if dtype == torch.float64:
        bits = ~code
        return (bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)).view(torch.float64)
    bits = ~(code - 0x80000000).to(torch.int32)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).view(torch.float32).to(dtype)


def rank(scores: Tensor, true: Tensor, mask: Tensor | None) -> Ranked:
    """Sort rows (R, N) of scores from high to low and carry their labels along."""
    rows, length = scores.shape
    code = descending_code(scores)
    if mask is not None:
        code = torch.where(
            mask, code, torch.iinfo(torch.int64).max if scores.dtype == torch.float64 else 0xFFFFFFFF
        )
        true = true & mask
    if scores.dtype == torch.float64:
        code, order = code.sort(dim=1)
        label = true.gather(1, order).long()
    else:
        # Row, score and label fit in one integer, and one flat radix sort of integers beats a sort per row.
        row = torch.arange(rows, device=scores.device)[:, None] << 33
        key = ((code << 1).add_(true) + row).flatten().sort().values.view(rows, length)
        label = key & 1
        code = (key >> 1) & 0xFFFFFFFF
    last = torch.ones_like(code, dtype=torch.bool)
    torch.ne(code[:, 1:], code[:, :-1], out=last[:, :-1])
    return Ranked(label, last, code)


def by_class(inputs: Inputs) -> Iterator[tuple[slice, slice, Tensor, Tensor, Tensor | None]]:
    """Chunks of (models, classes): their slices, and rows (R, N) of scores, true and mask, one row a class.

    `inputs.scores` must be (M, N, L). Small models go together; a large one is cut between classes.
    """
    scores, true, mask = inputs.scores, inputs.true, inputs.mask
    models, length, classes = scores.shape
    budget = CHUNK_HOST if on_host(scores) else CHUNK_DEVICE
    step_c = max(1, min(classes, budget // length))
    step_m = max(1, budget // (length * classes)) if step_c == classes else 1
    for m in range(0, models, step_m):
        for c in range(0, classes, step_c):
            sm, sc = slice(m, m + step_m), slice(c, c + step_c)
            part = scores[sm, :, sc]
            yield (
                sm,
                sc,
                rows_of(part, part),
                rows_of((true[sm] if true.ndim == 3 else true)[..., sc], part),
                None if mask is None else rows_of((mask[sm] if mask.ndim == 3 else mask)[..., sc], part),
            )


def rows_of(value: Tensor, like: Tensor) -> Tensor:
    """(N, c) or (m, N, c) as rows (m·c, N), repeated for every model of `like` where there is one for all."""
    return value.expand(like.shape).transpose(-1, -2).reshape(-1, like.shape[-2])


def stacked(inputs: Inputs) -> Inputs:
    """`inputs` with exactly one leading dimension of models."""
    shape = inputs.scores.shape

    def flat(value: Tensor) -> Tensor:
        return value.reshape(-1, *shape[-2:]) if value.ndim > 2 else value

    mask = None if inputs.mask is None else flat(inputs.mask)
    return Inputs(inputs.scores.reshape(-1, *shape[-2:]), flat(inputs.true), mask, inputs.numpy)
