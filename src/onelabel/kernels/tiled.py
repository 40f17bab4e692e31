"""A `Form` on a GPU: Triton reads logits and labels once, writes the gradient once and adds up the loss meanwhile.

Sums are taken in float32 in an order that depends on sizes alone, without atomics, so results repeat bit by bit. The
host never waits. Imported on first use, because it imports triton.
"""

from __future__ import annotations

import types
from typing import Any

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

from onelabel.kernels import closed, form
from onelabel.kernels.form import Form
from onelabel.kernels.tritonwords import WORDS

BLOCK = 2048
WARPS = 8
#: Programs of the scaling kernel: enough to fill any GPU, few enough to return at once when there is nothing to do.
SCALERS = 1024
NUMBERS = (4, 6, 4)  #: numbers a curve may have: positive, unknown, negative


def _compiled() -> dict[str, Any]:
    """The functions of `closed`, with Triton's words for theirs."""
    scope: dict[str, Any] = {
        "__name__": closed.__name__ + ".triton",
        "tl": tl,
        "constexpr": tl.constexpr,
        "Any": tl.tensor,
        **WORDS,
    }
    kinds = {name: value for name, value in vars(form).items() if name.isupper() and isinstance(value, int)}
    # Compiled code may read only globals that say they are constant, interpreted code wants plain numbers.
    interpreted = not isinstance(WORDS["parts"], triton.JITFunction)
    scope.update(kinds if interpreted else {name: tl.constexpr(value) for name, value in kinds.items()})
    for name, function in list(vars(closed).items()):
        if isinstance(function, types.FunctionType) and function.__module__ == closed.__name__:
            copy = types.FunctionType(function.__code__, scope, name, function.__defaults__)
            copy.__annotations__ = function.__annotations__
            scope[name] = triton.jit(copy)
    return scope


_scope = _compiled()
_curve, _soft_target, _parts, _sigmoid = (
    _scope["curve"],
    _scope["soft_target"],
    WORDS["parts"],
    WORDS["sigmoid"],
)


@triton.jit
def _number(value, model, slot: tl.constexpr, pointers: tl.constexpr, stacked: tl.constexpr):  # type: ignore[no-untyped-def]
    if (pointers >> slot) & 1:
        return tl.load(value + model * ((stacked >> slot) & 1)).to(tl.float32)
    else:  # noqa: RET505  Triton needs both branches
        return value


@triton.jit(do_not_specialize=["z_stride", "num_classes", "row_stride", "row_count", "upstream_stride"])
def _entries(  # type: ignore[no-untyped-def]
    g_ptr, z_ptr, out_ptr, sum_ptr, rows_ptr, target_ptr, upstream_ptr,
    size, z_stride, num_classes, row_stride, row_count, upstream_stride, scale,
    a0, a1, a2, a3, b0, b1, b2, b3, b4, b5, c0, c1, c2, c3, weight, pull,
    pointers: tl.constexpr, stacked: tl.constexpr,
    positive: tl.constexpr, unknown: tl.constexpr, negative: tl.constexpr,
    has_rows: tl.constexpr, has_target: tl.constexpr, has_pull: tl.constexpr, has_upstream: tl.constexpr,
    has_sum: tl.constexpr, has_grad: tl.constexpr, one_model: tl.constexpr, even: tl.constexpr,
    two_sided: tl.constexpr, width: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0).to(tl.int64)
    model = tl.program_id(1).to(tl.int64)
    # Told of no more than 16 bytes of logits, threads take labels in pieces that match them.
    at = tl.max_contiguous(tl.arange(0, block), width)
    start = tile * block
    if even:
        inside = tl.full((block,), True, tl.int1)
    else:
        inside = at < size - start
    here, there = start, start
    if not one_model:  # said at compile time, for wide loads need to know that addresses are aligned
        here, there = model * size + start, model * z_stride + start
    g = tl.load(g_ptr + here + at, mask=inside, other=0.0).to(tl.float32)
    z = tl.load(z_ptr + there + at, mask=inside, other=0)
    e, u, r = _parts(g)
    v1, s1 = _curve(
        positive, g, e, u, r,
        _number(a0, model, 0, pointers, stacked), _number(a1, model, 1, pointers, stacked),
        _number(a2, model, 2, pointers, stacked), _number(a3, model, 3, pointers, stacked), 0.0, 0.0,
    )  # fmt: skip
    v2, s2 = _curve(
        unknown, g, e, u, r,
        _number(b0, model, 4, pointers, stacked), _number(b1, model, 5, pointers, stacked),
        _number(b2, model, 6, pointers, stacked), _number(b3, model, 7, pointers, stacked),
        _number(b4, model, 8, pointers, stacked), _number(b5, model, 9, pointers, stacked),
    )  # fmt: skip
    v3, s3 = _curve(
        negative, g, e, u, r,
        _number(c0, model, 10, pointers, stacked), _number(c1, model, 11, pointers, stacked),
        _number(c2, model, 12, pointers, stacked), _number(c3, model, 13, pointers, stacked), 0.0, 0.0,
    )  # fmt: skip
    if has_target:
        t = tl.load(target_ptr + here + at, mask=inside, other=-1.0).to(tl.float32)
        vt, st = _soft_target(g, e, u, r, t, _number(weight, model, 14, pointers, stacked))
        v2, s2 = tl.where(t >= 0, vt, v2), tl.where(t >= 0, st, s2)
    if has_rows:
        first = start // num_classes
        row = (first + ((start - first * num_classes).to(tl.int32) + at) // num_classes) + model * row_stride
        w1 = tl.load(rows_ptr + row, mask=inside, other=0.0)
        w2 = tl.load(rows_ptr + row_count + row, mask=inside, other=0.0)
        w3 = tl.load(rows_ptr + 2 * row_count + row, mask=inside, other=0.0)
        v1, s1, v2, s2, v3, s3 = w1 * v1, w1 * s1, w2 * v2, w2 * s2, w3 * v3, w3 * s3
    if has_sum:
        if two_sided:
            value = tl.where(z > 0, v1, v2)
        else:
            value = tl.where(z > 0, v1, tl.where(z < 0, v3, v2))
        if not even:
            value = tl.where(inside, value, 0.0)
        tl.store(sum_ptr + model * tl.num_programs(0) + tile, tl.sum(value, axis=0) * scale)
    if has_grad:
        if two_sided:
            slope = tl.where(z > 0, s1, s2) * scale
        else:
            slope = tl.where(z > 0, s1, tl.where(z < 0, s3, s2)) * scale
        if has_pull:
            slope += _number(pull, model, 15, pointers, stacked) * _sigmoid(g, e, r) * _sigmoid(-g, e, r)
        if has_upstream:
            slope *= tl.load(upstream_ptr + model * upstream_stride).to(tl.float32)
        tl.store(out_ptr + here + at, slope.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["count"])
def _total(sum_ptr, out_ptr, count, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sum of `count` numbers of each model, always in the same order."""
    model = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, block)
    total = tl.zeros((block,), tl.float32)
    for start in range(0, count, block):
        total += tl.load(sum_ptr + model * count + start + at, mask=start + at < count, other=0.0)
    tl.store(out_ptr + model, tl.sum(total, axis=0))


@triton.jit(do_not_specialize=["factor_stride"])
def _rescale(x_ptr, factor_ptr, size, factor_stride, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """x ← factor·x, model by model; reads nothing but the factor where that is 1."""
    model = tl.program_id(1).to(tl.int64)
    factor = tl.load(factor_ptr + model * factor_stride).to(tl.float32)
    if factor != 1.0:
        at = tl.arange(0, block)
        first, programs = tl.program_id(0).to(tl.int64), tl.num_programs(0)
        for i in range(tl.cdiv(size, block * programs)):
            start = (first + i * programs) * block
            inside = at < size - start
            here = x_ptr + (model * size + start) + at
            x = tl.load(here, mask=inside, other=0.0)
            tl.store(here, (x.to(tl.float32) * factor).to(x.dtype), mask=inside)


def evaluate(
    logits: Tensor,
    observed: Tensor,
    shape: Form,
    *,
    loss: bool = True,
    grad: bool = True,
    upstream: Tensor | None = None,
    out: Tensor | None = None,
    scale: float | None = None,
    block: int = BLOCK,
    warps: int = WARPS,
    width: int = 0,
) -> tuple[Tensor | None, Tensor | None]:
    """The mean loss (float32, one per model) and its gradient (in the logits' dtype, times `upstream`), as asked for.

    `out` receives the gradient and may be `logits` itself.
    """
    models = logits.shape[0] if logits.ndim == 3 else 1
    batch, num_classes = logits.shape[-2:]
    size = batch * num_classes
    logits, observed = logits.contiguous(), observed.contiguous()
    if out is None:
        out = torch.empty_like(logits) if grad else logits
    assert out.is_contiguous()
    tiles = triton.cdiv(size, block)
    sums = torch.empty(models, tiles, dtype=torch.float32, device=logits.device) if loss else logits
    numbers, pointers, stacked = _arguments(shape, models)
    none = logits  # a pointer that is not read
    with torch.cuda.device(logits.device) if logits.is_cuda else _Nowhere():
        _entries[(tiles, models)](
            logits, observed, out, sums,
            none if shape.rows is None else shape.rows.to(torch.float32).contiguous(),
            none if shape.target is None else shape.target.contiguous(),
            none if upstream is None else upstream,
            size, size if observed.ndim == 3 else 0, num_classes,
            0 if shape.rows is None or shape.rows.ndim == 2 else batch,
            0 if shape.rows is None else shape.rows[0].numel(),
            0 if upstream is None or upstream.ndim == 0 else upstream.stride(0),
            shape.scale(batch, num_classes) if scale is None else scale,
            *numbers,
            pointers=pointers, stacked=stacked,
            positive=shape.positive.kind, unknown=shape.unknown.kind, negative=shape.negative.kind,
            has_rows=shape.rows is not None, has_target=shape.target is not None, has_pull=shape.pull is not None,
            has_upstream=upstream is not None, has_sum=loss, has_grad=grad,
            one_model=models == 1, even=size % block == 0, two_sided=shape.two_sided,
            width=width or 16 // logits.element_size(), block=block, num_warps=warps,
            enable_fp_fusion=True,  # not every version's default
        )  # fmt: skip
        if loss and tiles > 1:
            whole = torch.empty(models, dtype=torch.float32, device=logits.device)
            # One program a model: with few and wide steps it is done in microseconds.
            wide = tiles > 1024
            _total[(models,)](sums, whole, tiles, block=8192 if wide else 1024, num_warps=16 if wide else 4)
            sums = whole
    return (sums.view(logits.shape[:-2]) if loss else None), (out if grad else None)


def rescale_(x: Tensor, factor: Tensor) -> Tensor:
    """x ← factor·x in place (one factor per model where x is a stack); next to nothing where the factor is 1."""
    models = x.shape[0] if factor.ndim else 1
    size = x.numel() // max(models, 1)
    with torch.cuda.device(x.device) if x.is_cuda else _Nowhere():
        _rescale[(min(triton.cdiv(size, BLOCK), SCALERS), models)](
            x, factor, size, factor.stride(0) if factor.ndim else 0, block=BLOCK, num_warps=WARPS
        )
    return x


def _arguments(shape: Form, models: int) -> tuple[list[Any], int, int]:
    """The numbers in their slots, which of them are in device memory, and which of those differ between models."""
    values: list[Any] = []
    for curve, room in zip(shape.curves, NUMBERS, strict=True):
        values += [*curve.numbers, *[0.0] * (room - len(curve.numbers))]
    values += [shape.target_weight, 0.0 if shape.pull is None else shape.pull]
    pointers = stacked = 0
    for slot, value in enumerate(values):
        if isinstance(value, Tensor):
            pointers |= 1 << slot
            stacked |= (value.numel() > 1) << slot
            values[slot] = value.contiguous()
        else:
            values[slot] = float(value)
    return values, pointers, stacked


class _Nowhere:
    """What stands for the device under Triton's interpreter."""

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...
