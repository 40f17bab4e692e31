"""The words of `closed` for Triton, in float32."""

from __future__ import annotations

import os
from typing import Any

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

#: NVIDIA's own instructions for 2^x and 1/x that flush denormal numbers, one each where others are four; not under the
#: interpreter.
NATIVE = tl.constexpr(os.environ.get("TRITON_INTERPRET", "0") != "1" and torch.version.hip is None)

# log(1+e)/e on [0, 1] and (exp(x)−1)/x on [−½, 0]: least squares at Chebyshev nodes, relative errors under 2e-7 in
# float32. log(1 + e) itself would lose all of a small e.


@triton.jit
def exp(x):  # type: ignore[no-untyped-def]
    if NATIVE:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x * 1.4426950408889634], dtype=tl.float32, is_pure=True, pack=1
        )
    else:  # noqa: RET505  Triton needs both branches
        return tl.exp(x)


@triton.jit
def reciprocal(x):  # type: ignore[no-untyped-def]
    if NATIVE:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:  # noqa: RET505
        return 1.0 / x


@triton.jit
def power(x, exponent):  # type: ignore[no-untyped-def]
    """x^exponent for x > 0."""
    if NATIVE:
        log2 = tl.inline_asm_elementwise(
            "lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
        return exp(exponent * log2 * 0.6931471805599453)
    else:  # noqa: RET505
        return tl.exp(exponent * tl.log(x))


@triton.jit
def log1p_unit(e):  # type: ignore[no-untyped-def]
    """log(1+e) for e in [0, 1]."""
    y = e * 0.0051058256067335606 - 0.028991956263780594
    y = y * e + 0.07738073915243149
    y = y * e - 0.13590599596500397
    y = y * e + 0.1907130926847458
    y = y * e - 0.2483394593000412
    y = y * e + 0.3331793546676636
    y = y * e - 0.4999943673610687
    y = y * e + 0.9999999403953552
    return y * e


@triton.jit
def expm1(x):  # type: ignore[no-untyped-def]
    """exp(x) − 1 for x ≤ 0."""
    y = x * 0.0011213721008971334 + 0.008187059313058853
    y = y * x + 0.04162894934415817
    y = y * x + 0.16666221618652344
    y = y * x + 0.4999997913837433
    y = (y * x + 1.0) * x
    return tl.where(x > -0.5, y, exp(x) - 1.0)


@triton.jit
def parts(x):  # type: ignore[no-untyped-def]
    e = exp(-tl.abs(x))
    return e, log1p_unit(e), reciprocal(1.0 + e)


@triton.jit
def sigmoid(x, e, r):  # type: ignore[no-untyped-def]
    return tl.where(x >= 0, r, e * r)


@triton.jit
def softplus(x, u):  # type: ignore[no-untyped-def]
    return tl.maximum(x, 0.0) + u


@triton.jit
def logaddexp(x, y):  # type: ignore[no-untyped-def]
    return tl.maximum(x, y) + log1p_unit(exp(tl.minimum(x, y) - tl.maximum(x, y)))


@triton.jit
def absolute(x):  # type: ignore[no-untyped-def]
    return tl.abs(x)


@triton.jit
def log(x):  # type: ignore[no-untyped-def]
    return tl.log(x)


@triton.jit
def where(condition, yes, no):  # type: ignore[no-untyped-def]
    return tl.where(condition, yes, no)


@triton.jit
def over(p, threshold, gate):  # type: ignore[no-untyped-def]
    return p > tl.where(gate > 0, threshold, 2.0)


@triton.jit
def choose(condition, yes, no):  # type: ignore[no-untyped-def]
    return tl.where(condition, yes, no)


@triton.jit
def nothing(x):  # type: ignore[no-untyped-def]
    return tl.zeros_like(x)


# Wrapped even where they only pass on, for the interpreter replaces what it finds under the name tl.
WORDS: dict[str, Any] = {
    word.__name__: word
    for word in (
        absolute,
        choose,
        exp,
        expm1,
        log,
        logaddexp,
        nothing,
        over,
        parts,
        power,
        reciprocal,
        sigmoid,
        softplus,
        where,
    )
}
