"""The words of `closed` for Triton, in float32."""

from __future__ import annotations

import os
from typing import Any

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

#: NVIDIA's own instructions for 2^x, log₂ x and 1/x that flush denormal numbers, one each where others are four; not
#: under the interpreter.
NATIVE = tl.constexpr(os.environ.get("TRITON_INTERPRET", "0") != "1" and torch.version.hip is None)


# log(1+e)/e on [0, 1] and (2^z−1)/(z·log 2) on [−0.36, 0]: least squares at Chebyshev nodes, relative errors under
# 3e-7 in float32. log(1 + e) itself would lose all of a small e.


@triton.jit
def exp2(x):  # type: ignore[no-untyped-def]
    if NATIVE:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:  # noqa: RET505  Triton needs both branches
        return tl.exp(x * 0.6931471805599453)


@triton.jit
def log2(x):  # type: ignore[no-untyped-def]
    if NATIVE:
        return tl.inline_asm_elementwise(
            "lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:  # noqa: RET505
        return tl.log(x) * 1.4426950408889634


@triton.jit
def reciprocal(x):  # type: ignore[no-untyped-def]
    if NATIVE:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:  # noqa: RET505
        return 1.0 / x


@triton.jit
def rising(q, gamma, g, u):  # type: ignore[no-untyped-def]
    """q^γ for q = 1−p."""
    return exp2((gamma * -1.4426950408889634) * softplus(g, u))


@triton.jit
def times(number, x):  # type: ignore[no-untyped-def]
    return number * x


@triton.jit
def less(x, rate, g):  # type: ignore[no-untyped-def]
    return x - rate * g


@triton.jit
def power(x, exponent):  # type: ignore[no-untyped-def]
    """x^exponent for x > 0."""
    return exp2(exponent * log2(x))


@triton.jit
def log1p_unit(e):  # type: ignore[no-untyped-def]
    """log(1+e) for e in [0, 1]."""
    y = e * -0.008336497470736504 + 0.04337085038423538
    y = y * e - 0.10667790472507477
    y = y * e + 0.1767549365758896
    y = y * e - 0.2447046935558319
    y = y * e + 0.3327118754386902
    y = y * e - 0.49997127056121826
    y = y * e + 0.9999997615814209
    return y * e


@triton.jit
def log1p_large(x):  # type: ignore[no-untyped-def]
    """log(1+x) for x ≥ 0."""
    return tl.where(x < 1.0, log1p_unit(tl.minimum(x, 1.0)), log2(1.0 + x) * 0.6931471805599453)


@triton.jit
def inverse(rate):  # type: ignore[no-untyped-def]
    return 1.0 / tl.maximum(rate, 1e-30)


@triton.jit
def decay(x, rate, share):  # type: ignore[no-untyped-def]
    """(1 − exp(−rate·x))/rate, which is x at rate 0, and exp(−rate·x); for x, rate ≥ 0, share = `inverse`(rate)."""
    z = (rate * -1.4426950408889634) * x
    left = exp2(z)
    y = z * 0.0017389294225722551 + 0.013821002095937729
    y = y * z + 0.08006896078586578
    y = y * z + 0.3465733528137207
    y = y * z + 1.0
    return tl.where(z > -0.36, y * x, share - share * left), left


@triton.jit
def narrowed(sigma):  # type: ignore[no-untyped-def]
    return 0.8493218002880191 / sigma  # sqrt(log₂e/2): `bell` is a power of 2


@triton.jit
def bell(x, mu, narrow):  # type: ignore[no-untyped-def]
    apart = x * narrow - mu * narrow
    return exp2(apart * -1.0 * apart)


@triton.jit
def minus_log(x):  # type: ignore[no-untyped-def]
    return log2(x) * -0.6931471805599453


@triton.jit
def log_complement(x, rest):  # type: ignore[no-untyped-def]
    """−log(1−x), given rest = 1−x too."""
    y = x * 0.25 + 0.3333333333333333
    y = y * x + 0.5
    y = (y * x + 1.0) * x
    return tl.where(x < 0.03, y, log2(rest) * -0.6931471805599453)


@triton.jit
def parts(x):  # type: ignore[no-untyped-def]
    e = exp2(tl.abs(x) * -1.4426950408889634)
    return e, log1p_unit(e), reciprocal(1.0 + e)


@triton.jit
def logistic(w, b, x):  # type: ignore[no-untyped-def]
    """σ(w·x + b)."""
    return reciprocal(1.0 + exp2((w * -1.4426950408889634) * x + b * -1.4426950408889634))


@triton.jit
def minus(x):  # type: ignore[no-untyped-def]
    """−x, which costs nothing so, where Triton's own is 0 − x."""
    return x * -1.0


@triton.jit
def sigmoid(x, e, r):  # type: ignore[no-untyped-def]
    return tl.where(x >= 0, r, e * r)


@triton.jit
def sigmoids(x, e, r):  # type: ignore[no-untyped-def]
    er = e * r
    return tl.where(x >= 0, r, er), tl.where(x >= 0, er, r)


@triton.jit
def softplus(x, u):  # type: ignore[no-untyped-def]
    return tl.maximum(x, 0.0) + u


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
def sided(p, threshold, gate):  # type: ignore[no-untyped-def]
    return p > tl.where(gate > 0, threshold, 2.0)


@triton.jit
def turned(side, x):  # type: ignore[no-untyped-def]
    return tl.where(side, x, x * -1.0)


@triton.jit
def pick(side, yes, no):  # type: ignore[no-untyped-def]
    return tl.where(side, yes, no)


@triton.jit
def nothing(x):  # type: ignore[no-untyped-def]
    return tl.zeros_like(x)


# Wrapped even where they only pass on, for the interpreter replaces what it finds under the name tl.
_ALL = (
    *(absolute, bell, decay, inverse, less, log, log_complement, logistic, minus, minus_log, narrowed, nothing, parts),
    *(pick, power, reciprocal, rising, sided, sigmoid, sigmoids, softplus, times, turned, where),
)
WORDS: dict[str, Any] = {word.__name__: word for word in _ALL}
