"""Launching a Triton kernel without Triton's own preparations, which take longer than a small kernel itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_ready: dict[tuple[Any, ...], Any] = {}


def launch(kernel: Any, grid: tuple[int, int], given: list[Any], fixed: tuple[Any, ...], **options: int) -> None:
    """Run `kernel` on `grid` with its arguments `given`, tensors before numbers, and the constants after, `fixed`.

    `options` are Triton's own.

    The first call of its kind goes through Triton, which compiles; later ones hand the compiled kernel plain addresses.
    Of their kind are calls with the same constants, device, dtypes and alignment of tensors. Integers must not be
    specialised on (`do_not_specialize`), for their values are no part of the kind.
    """
    plain: list[Any] = []
    kind: list[Any] = [id(kernel), fixed, *options.values()]
    for value in given:
        if isinstance(value, Tensor):
            address = value.data_ptr()
            plain.append(address)
            kind.append((value.dtype, address & 15 == 0))
        else:
            plain.append(value)
            if value >= 1 << 31:
                kind.append(len(plain))
    device = given[0].device
    kind.append(device)
    key = tuple(kind)
    compiled = _ready.get(key)
    index = device.index if device.type == "cuda" else None
    if index is None or index == torch.cuda.current_device():
        compiled = _run(kernel, compiled, grid, given, plain, fixed, options, index)
    else:
        with torch.cuda.device(index):
            compiled = _run(kernel, compiled, grid, given, plain, fixed, options, index)
    _ready[key] = compiled


def _run(
    kernel: Any,
    compiled: Any,
    grid: Any,
    given: Any,
    plain: Any,
    fixed: Any,
    options: dict[str, int],
    index: int | None,
) -> Any:
    if compiled is None or index is None:  # always, under the interpreter
        return kernel[grid](*given, *fixed, **options, enable_fp_fusion=True)  # not every version's default
    compiled[(*grid, 1)](*plain, *fixed, stream=torch._C._cuda_getCurrentRawStream(index))
    return compiled
