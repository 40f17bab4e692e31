"""Sparse labels into a dense block of zeros, in one kernel."""

from __future__ import annotations

import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

from onelabel.kernels.launch import launch

BLOCK = 256


@triton.jit(do_not_specialize=["count", "first", "width"])
def place(rows, cols, values, into, count, first, width, clear: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < count
    col = tl.load(cols + at, mask=inside, other=-1) - first
    inside = inside & (col >= 0) & (col < width)
    row = tl.load(rows + at, mask=inside, other=0).to(tl.int64)
    value = tl.load(values + at, mask=inside, other=0)
    if clear:
        value = tl.zeros_like(value)
    tl.store(into + row * width + col, value, mask=inside)


def put(rows: Tensor, cols: Tensor, values: Tensor, into: Tensor, first: int, *, clear: bool) -> None:
    """Entries (row, column, value) from column `first` on into a contiguous B×width block, or 0 in their place."""
    count = len(rows)
    if count:
        tensors = (rows.contiguous(), cols.contiguous(), values.contiguous(), into)
        numbers = [count, first, into.shape[1]]
        launch(place, (-(-count // BLOCK), 1), tensors, numbers, (clear, BLOCK), num_warps=4)
