"""Launching a Triton kernel without Triton's own preparations, which take longer than a small kernel itself."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

_ready: dict[tuple[Any, ...], Any] = {}


def launch(
    kernel: Any,
    grid: tuple[int, int],
    tensors: Sequence[Tensor],
    numbers: list[Any],
    fixed: tuple[Any, ...],
    *,
    num_warps: int,
    maxnreg: int = 0,
    inner: Sequence[tuple[int, Tensor]] = (),
) -> None:
    """Run `kernel` on `grid` with its arguments: `tensors`, `numbers`, and the constants `fixed`, in this order.

    `inner` says which of the numbers are in device memory: their places, and the tensors.

    The first call of its kind goes through Triton, which compiles; later ones hand the compiled kernel plain addresses.
    Of their kind are calls with the same constants, device and dtypes. Integers must not be specialised on
    (`do_not_specialize`), for their values are no part of the kind. Addresses are taken to be multiples of 16; where
    one is not, Triton is asked.
    """
    addresses = [tensor.data_ptr() for tensor in tensors]
    odd = 0
    for address in addresses:
        odd |= address
    device = tensors[0].device
    wide = max(numbers) >= 1 << 31
    key = (id(kernel), fixed, num_warps, maxnreg, device, *[tensor.dtype for tensor in tensors])
    if inner:
        key += tuple([tensor.dtype for _, tensor in inner])
    if wide:
        key += tuple([i for i, number in enumerate(numbers) if number >= 1 << 31])
    given = numbers
    if inner:
        given = numbers.copy()
        for place, tensor in inner:
            given[place] = address = tensor.data_ptr()
            odd |= address
    compiled = _ready.get(key)
    if compiled is None or odd & 15 or _current(device) != device.index:
        compiled = _by_triton(kernel, grid, tensors, numbers, fixed, num_warps, maxnreg, inner)
        if not odd & 15:
            _ready[key] = compiled
        return
    run, function, packed = compiled
    stream = torch._C._cuda_getCurrentRawStream(device.index)
    # Without the hooks for profilers of Triton's own, which are called whether or not there is one.
    run(*grid, 1, stream, function, packed, None, None, None, *addresses, *given, *fixed)


def _current(device: torch.device) -> int | None:
    return torch.cuda.current_device() if device.type == "cuda" else None


def _by_triton(
    kernel: Any, grid: Any, tensors: Any, numbers: Any, fixed: Any, num_warps: int, maxnreg: int, inner: Any
) -> Any:
    options = {"num_warps": num_warps, "maxnreg": maxnreg} if maxnreg else {"num_warps": num_warps}
    given, device = list(numbers), tensors[0].device
    for place, tensor in inner:
        given[place] = tensor
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        made = kernel[grid](*tensors, *given, *fixed, **options, enable_fp_fusion=True)  # not every version's default
    if device.type != "cuda":  # the interpreter
        return None
    return made.run, made.function, made.packed_metadata
