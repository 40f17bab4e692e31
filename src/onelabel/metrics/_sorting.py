"""One sort for all classes at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from onelabel.metrics._arrays import CHUNK_DEVICE, CHUNK_HOST, Inputs, on_host


class Ranked(NamedTuple):
    """Rows (R, N), one a class, from the highest score to the lowest; entries outside the mask come last."""

    label: Tensor
    """int64: 1 positive, 0 negative or outside the mask."""
    last: Tensor
    """bool: the next score is lower, so a threshold can fall here."""
    code: Tensor
    """int64: the scores as integers; see `descending_code`."""
    size: Tensor
    """int64 (R, 1): how many entries are inside the mask."""
    dtype: torch.dtype
    """The type of the scores."""

    def scores(self) -> Tensor:
        """The sorted scores; meaningless outside the mask."""
        if self.dtype == torch.float64:
            bits = ~self.code
            return (bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)).view(torch.float64)
        bits = ~(self.code - 0x80000000).to(torch.int32)
        return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).view(torch.float32)

    def thresholds(self) -> tuple[Tensor, Tensor]:
        """At every entry, the positives so far, and those that a threshold here adds to the one before.

        Only the end of a run of ties is a threshold; elsewhere nothing is added.
        """
        hits = self.label.cumsum(1)
        before = running_max(torch.where(self.last, hits, 0))[:, :-1]
        added = hits.clone()
        added[:, 1:] -= before
        return hits, torch.where(self.last, added, 0)


def running_max(rows: Tensor, *, block: int = 1024) -> Tensor:
    """The greatest so far in each row (R, N) of numbers of at least 0."""
    length = rows.shape[1]
    if on_host(rows) or length < 64 * block:
        return rows.cummax(1).values
    # A GPU gives one group of threads to a row: long rows are cut into blocks, and the blocks joined after.
    blocks = torch.nn.functional.pad(rows, (0, -length % block)).view(len(rows), -1, block).cummax(2).values
    ends = blocks[:, :-1, -1].cummax(1).values
    blocks[:, 1:] = torch.maximum(blocks[:, 1:], ends[..., None])
    return blocks.view(len(rows), -1)[:, :length]


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


def rank(scores: Tensor, true: Tensor, mask: Tensor | None) -> Ranked:
    """Sort rows (R, N) of scores from high to low and carry their labels along."""
    rows, length = scores.shape
    code = descending_code(scores)
    if mask is None:
        size = torch.full((rows, 1), length, device=scores.device)
    else:
        code = torch.where(mask, code, 0xFFFFFFFF if scores.dtype != torch.float64 else (1 << 63) - 1)
        true = true & mask
        size = mask.sum(1, keepdim=True)
    if scores.dtype == torch.float64:
        code, order = code.sort(dim=1)
        label = true.gather(1, order).long()
    else:
        # Row, score and label fit in one integer, and one flat radix sort of integers beats a sort per row.
        row = torch.arange(rows, device=scores.device)[:, None] << 33
        key = (code << 1).add_(true).add_(row).flatten().sort().values.view(rows, length)
        label = key & 1
        code = (key >> 1) & 0xFFFFFFFF
    last = torch.ones_like(code, dtype=torch.bool)
    torch.ne(code[:, 1:], code[:, :-1], out=last[:, :-1])
    return Ranked(label, last, code, size, scores.dtype)


def by_class(inputs: Inputs) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Chunks of rows (R, N) of scores, true and mask, one row a class, model after model.

    Small models go together; a large one is cut between classes.
    """
    shape = inputs.scores.shape[-2:]
    length, classes = shape
    scores, true, mask = (
        x if x is None or x.ndim == 2 < inputs.scores.ndim else x.reshape(-1, *shape) for x in inputs[:3]
    )
    assert scores is not None and true is not None  # noqa: PT018
    budget = CHUNK_HOST if on_host(scores) else CHUNK_DEVICE
    step_c = max(1, min(classes, budget // length))
    step_m = max(1, budget // (length * classes)) if step_c == classes else 1
    for m in range(0, scores.shape[0], step_m):
        for c in range(0, classes, step_c):
            models, some = slice(m, m + step_m), slice(c, c + step_c)
            part = scores[models, :, some]

            def rows(value: Tensor, models: slice = models, some: slice = some, like: Tensor = part) -> Tensor:
                value = (value[models] if value.ndim == 3 else value)[..., some].expand(like.shape)
                return value.transpose(-1, -2).contiguous().view(-1, like.shape[-2])

            yield rows(scores), rows(true), None if mask is None else rows(mask)


def per_class(inputs: Inputs, reduce: Callable[[Ranked], Tensor]) -> Tensor:
    """`reduce`, from ranked rows (R, N) to (R, ...), for every class of every model: (..., L, ...)."""
    parts = []
    for scores, true, mask in by_class(inputs):
        part = reduce(rank(scores, true, mask))
        if not on_host(scores):  # on a CPU a NaN score has been refused already
            nan = scores.isnan().any(1).view(-1, *[1] * (part.ndim - 1))
            part = torch.where(nan, torch.nan, part)
        parts.append(part)
    shape = inputs.scores.shape
    out = torch.cat(parts)
    return out.view(*shape[:-2], shape[-1], *out.shape[1:])


def per_example(inputs: Inputs, reduce: Callable[[Ranked], Tensor]) -> Tensor:
    """`per_class` with the examples in the place of the classes: (..., N, ...)."""
    turned = [None if x is None else x.transpose(-1, -2) for x in inputs[:3]]
    return per_class(Inputs(turned[0], turned[1], turned[2], inputs.numpy), reduce)  # type: ignore[arg-type]


def pooled(inputs: Inputs) -> Inputs:
    """All entries of a model as one class."""
    flat = [None if x is None else x.flatten(-2).unsqueeze(-1) for x in inputs[:3]]
    return Inputs(flat[0], flat[1], flat[2], inputs.numpy)  # type: ignore[arg-type]
