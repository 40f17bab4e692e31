"""The Triton kernels: logits and labels in, the gradient and parts of the loss out.

Almost every label is unknown. A tile is therefore first looked at whole, four labels a word: where none is observed
only the curve of unknown entries is evaluated, and the sum of log(1+e) as the logarithm of a product.
"""

from __future__ import annotations

import types
from typing import Any

import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

from onelabel.kernels import closed, form, halves
from onelabel.kernels.tritonwords import WORDS, log1p_large


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
_curve, _prepared, _soft_target, _weight_of_log = (
    _scope[name] for name in ("curve", "prepared", "soft_target", "weight_of_log")
)
_parts, _sigmoid = WORDS["parts"], WORDS["sigmoid"]
_fitted, _robust_half, _shifted_half = halves.fitted, halves.robust, halves.shifted_fourth
_GENTLE, _FOURTH = tl.constexpr(form.ROBUST_GENTLE), tl.constexpr(form.SHIFTED_FOURTH)


@triton.jit
def _number(value, model, slot: tl.constexpr, pointers: tl.constexpr, stacked: tl.constexpr):  # type: ignore[no-untyped-def]
    if (pointers >> slot) & 1:
        return tl.load(value + model * ((stacked >> slot) & 1)).to(tl.float32)
    else:  # noqa: RET505  Triton needs both branches
        return value


@triton.jit
def _either(a, b):  # type: ignore[no-untyped-def]
    return a | b


@triton.jit
def _if(condition, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """A mask that is the same everywhere."""
    return tl.full((block,), 1, tl.int1) & condition


@triton.jit
def _words(z_ptr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """Where `block` int8 labels are, four at a time."""
    return z_ptr.to(tl.pointer_type(tl.int32)) + tl.arange(0, block // 4)


@triton.jit
def _joint(a, b):  # type: ignore[no-untyped-def]
    """(1+a)(1+b) − 1: nothing of small numbers is lost."""
    return a * b + (a + b)


@triton.jit
def _folded(value, block: tl.constexpr, width: tl.constexpr):  # type: ignore[no-untyped-def]
    """Sums of `width` neighbours, which one thread holds."""
    return tl.sum(tl.reshape(value, (block // width, width)), axis=1)


@triton.jit
def _spread(slope, g, e, r, factor, drawn, has_pull: tl.constexpr):  # type: ignore[no-untyped-def]
    slope *= factor
    if has_pull:
        slope += drawn * _sigmoid(g, e, r) * _sigmoid(g * -1.0, e, r)
    return slope


@triton.jit(
    do_not_specialize=[
        "size", "z_stride", "num_classes", "row_stride", "row_count", "upstream_stride", "tiles", "turns",
    ]
)  # fmt: skip
def entries(  # type: ignore[no-untyped-def]
    g_ptr, z_ptr, out_ptr, sum_ptr, rows_ptr, target_ptr, upstream_ptr, used_ptr, guess_ptr,
    size, z_stride, num_classes, row_stride, row_count, upstream_stride, tiles, turns, scale,
    a0, a1, a2, a3, b0, b1, b2, b3, b4, b5, c0, c1, c2, c3, weight, pull,
    pointers: tl.constexpr, stacked: tl.constexpr,
    positive: tl.constexpr, unknown: tl.constexpr, negative: tl.constexpr,
    has_rows: tl.constexpr, has_target: tl.constexpr, has_pull: tl.constexpr, factor_from: tl.constexpr,
    has_sum: tl.constexpr, has_grad: tl.constexpr, one_model: tl.constexpr, even: tl.constexpr, aligned: tl.constexpr,
    two_sided: tl.constexpr, skims: tl.constexpr, log_once: tl.constexpr, width: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """`turns` tiles of one model. The gradient is multiplied by `scale` and, by `factor_from`,

    0: nothing; 1: upstream; 2: a guess at it, which is noted in `used`; 3: upstream, which becomes the next guess, and
    where it is what was used there is nothing to do.
    """
    program = tl.program_id(0)
    model = tl.program_id(1).to(tl.int64)
    if aligned:  # the compiler learns of it by this
        size = size // 16 * 16
    first, last = program * turns, tl.minimum(program * turns + turns, tiles)
    drawn, factor = _number(pull, model, 15, pointers, stacked), scale
    if factor_from == 2:
        known = tl.load(guess_ptr + model)
        if program == 0:
            tl.store(used_ptr + model, known)
    elif factor_from != 0:
        known = tl.load(upstream_ptr + model * upstream_stride).to(tl.float32)
    if factor_from == 3:
        if program == 0:
            tl.store(guess_ptr + model, known)
        last = tl.where(known == tl.load(used_ptr + model), first, last)
    if factor_from != 0:
        drawn, factor = drawn * known, scale * known
    n0, n1 = _number(b0, model, 4, pointers, stacked), _number(b1, model, 5, pointers, stacked)
    n2, n3 = _number(b2, model, 6, pointers, stacked), _number(b3, model, 7, pointers, stacked)
    n4, n5 = _number(b4, model, 8, pointers, stacked), _number(b5, model, 9, pointers, stacked)
    n0, n1, n2, n3, n4, n5 = _prepared(unknown, n0, n1, n2, n3, n4, n5)
    half: tl.constexpr = skims and width == 8
    coarse: tl.constexpr = g_ptr.dtype.element_ty == tl.bfloat16
    k0, k1, k2, k3, k4, k5, k6 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    if half and unknown == _GENTLE and not coarse:
        k0, k1, k2, k3, k4, k5, k6 = _fitted(n2, n3)
    # Told of no more than 16 bytes of logits, threads take labels in pieces that match them.
    at = tl.max_contiguous(tl.arange(0, block), width)
    sums = tl.zeros((block // width,), tl.float32)
    # A tile with observed labels is taken in pieces where few are: in one go it would need the registers that let a
    # processor hold enough threads to wait for memory.
    part: tl.constexpr = block // 4 if skims else block
    fold: tl.constexpr = 1 if skims else width
    some = tl.max_contiguous(tl.arange(0, part), width)
    mixed = tl.zeros((part // fold,), tl.float32)
    origin = first.to(tl.int64) * block
    if skims:
        stop = tl.minimum(last.to(tl.int64) * block, size)
        ahead = origin if one_model else model * size + origin
        near = tl.load(g_ptr + ahead + at, mask=_if(origin + block <= stop, block), other=0.0)
        ahead = origin if one_model else model * z_stride + origin
        words = tl.load(_words(z_ptr + ahead, block), mask=_if(origin + block <= stop, block // 4), other=0)
    for turn in range(last - first):
        start = origin + turn * block
        here, there = start, start
        if not one_model:  # said at compile time, for wide loads need to know that addresses are aligned
            here, there = model * size + start, model * z_stride + start
        seen = tl.full((), 1, tl.int32)
        x = tl.zeros((block,), tl.float32)
        if skims:
            x = near.to(tl.float32)
            seen = tl.where(start + block <= size, tl.reduce(words, 0, _either), 1)
            # The next tile is on its way while this one is computed.
            more = start + 2 * block <= stop
            near = tl.load(g_ptr + here + block + at, mask=_if(more, block), other=0.0)
            words = tl.load(_words(z_ptr + there + block, block), mask=_if(more, block // 4), other=0)
        if seen == 0:
            xe, xu, xr = _parts(x)
            if half and unknown == _GENTLE:
                value, slope = _robust_half(x, n0, n2, n3, n4, n5, k0, k1, k2, k3, k4, k5, k6, coarse)
            elif half and unknown == _FOURTH:
                value, slope = _shifted_half(x, n1)
            elif log_once:
                value, slope = _curve(unknown, x, xe, 0.0, xr, n0, n1, n2, n3, n4, n5)
            else:
                value, slope = _curve(unknown, x, xe, xu, xr, n0, n1, n2, n3, n4, n5)
            if has_sum:
                sums += _folded(value, block, width)
                if log_once:
                    joint = tl.reduce(tl.reshape(xe, (block // width, width)), 1, _joint)
                    sums += _weight_of_log(unknown, n0, n2) * log1p_large(joint)
            if has_grad:
                slope = _spread(slope, x, xe, xr, factor, drawn, has_pull)
                tl.store(out_ptr + here + at, slope.to(out_ptr.dtype.element_ty))
        else:
            for piece in range(0, block, part):
                if even:
                    inside = tl.full((part,), True, tl.int1)
                else:
                    inside = some < size - start - piece
                g = tl.load(g_ptr + here + piece + some, mask=inside, other=0.0).to(tl.float32)
                z = tl.load(z_ptr + there + piece + some, mask=inside, other=0)
                e, u, r = _parts(g)
                v1, s1 = _curve(
                    positive, g, e, u, r,
                    _number(a0, model, 0, pointers, stacked), _number(a1, model, 1, pointers, stacked),
                    _number(a2, model, 2, pointers, stacked), _number(a3, model, 3, pointers, stacked), 0.0, 0.0,
                )  # fmt: skip
                v2, s2 = _curve(unknown, g, e, u, r, n0, n1, n2, n3, n4, n5)
                v3, s3 = _curve(
                    negative, g, e, u, r,
                    _number(c0, model, 10, pointers, stacked), _number(c1, model, 11, pointers, stacked),
                    _number(c2, model, 12, pointers, stacked), _number(c3, model, 13, pointers, stacked), 0.0, 0.0,
                )  # fmt: skip
                if has_target:
                    t = tl.load(target_ptr + here + piece + some, mask=inside, other=-1.0).to(tl.float32)
                    vt, st = _soft_target(g, e, u, r, t, _number(weight, model, 14, pointers, stacked))
                    v2, s2 = tl.where(t >= 0, vt, v2), tl.where(t >= 0, st, s2)
                if has_rows:
                    line = (start + piece) // num_classes
                    row = line + ((start + piece - line * num_classes).to(tl.int32) + some) // num_classes
                    row += model * row_stride
                    w1 = tl.load(rows_ptr + row, mask=inside, other=0.0)
                    w2 = tl.load(rows_ptr + row_count + row, mask=inside, other=0.0)
                    w3 = tl.load(rows_ptr + 2 * row_count + row, mask=inside, other=0.0)
                    v1, s1, v2, s2, v3, s3 = w1 * v1, w1 * s1, w2 * v2, w2 * s2, w3 * v3, w3 * s3
                if two_sided:
                    cost, slant = tl.where(z > 0, v1, v2), tl.where(z > 0, s1, s2)
                else:
                    cost = tl.where(z > 0, v1, tl.where(z < 0, v3, v2))
                    slant = tl.where(z > 0, s1, tl.where(z < 0, s3, s2))
                if has_sum:
                    mixed += _folded(tl.where(inside, cost, 0.0), part, fold)
                if has_grad:
                    slant = _spread(slant, g, e, r, factor, drawn, has_pull)
                    tl.store(out_ptr + here + piece + some, slant.to(out_ptr.dtype.element_ty), mask=inside)
    if has_sum:
        tl.store(sum_ptr + model * tl.num_programs(0) + program, (tl.sum(sums, axis=0) + tl.sum(mixed, axis=0)) * scale)


@triton.jit(do_not_specialize=["count"])
def total(sum_ptr, out_ptr, count, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sum of `count` numbers of each model, always in the same order."""
    model = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, block)
    whole = tl.zeros((block,), tl.float32)
    for start in range(0, count, block):
        whole += tl.load(sum_ptr + model * count + start + at, mask=start + at < count, other=0.0)
    tl.store(out_ptr + model, tl.sum(whole, axis=0))


@triton.jit(do_not_specialize=["a_size", "b_size", "c_size", "factor_stride"])
def rescale(a, b, c, factor_ptr, a_size, b_size, c_size, factor_stride, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """x ← factor·x, model by model, of a, b and c; reads nothing but the factor where that is 1."""
    model = tl.program_id(1).to(tl.int64)
    factor = tl.load(factor_ptr + model * factor_stride).to(tl.float32)
    if factor != 1.0:
        _scaled(a + model * a_size, a_size, factor, block)
        _scaled(b, b_size, factor, block)
        _scaled(c, c_size, factor, block)


@triton.jit
def _scaled(x_ptr, size, factor, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, block)
    first, programs = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    for i in range(tl.cdiv(size, block * programs)):
        start = (first + i * programs) * block
        inside = at < size - start
        x = tl.load(x_ptr + start + at, mask=inside, other=0.0)
        tl.store(x_ptr + start + at, (x.to(tl.float32) * factor).to(x.dtype), mask=inside)
