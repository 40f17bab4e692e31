"""Two curves of unknown entries for logits in half precision, whose special functions would take longer than memory.

Of 2^x, log₂ x and 1/x a GPU computes one in eight cycles, and what is rounded to eleven bits or fewer can do with less
than `closed` gives: errors here stay under 2e-4 of the result, where float16 rounds to 5e-4; of GR in bfloat16 under
2e-3, to which it rounds. They are `closed`'s functions (ROBUST_LINEAR, SHIFTED_FOURTH), and tested against them.

exp(−g) is taken for both signs of g at once, held below 2⁶². GR's log p is right to g = −87 and stays there.
"""

from __future__ import annotations

import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

from onelabel.kernels.tritonwords import NATIVE, bell, exp2, log2, logistic, reciprocal


@triton.jit
def _cosine(x):  # type: ignore[no-untyped-def]
    if NATIVE:
        return tl.inline_asm_elementwise("cos.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:  # noqa: RET505  Triton needs both branches
        return tl.cos(x)


@triton.jit
def fitted(w, b):  # type: ignore[no-untyped-def]
    """The polynomial of degree six in t = 2p − 1 that is σ(w·p + b) for p in [0, 1]: its coefficients.

    Chebyshev's expansion from eight nodes; for |w| ≤ 2 it is off by at most 1.5e-5 of the value, whatever b.
    """
    t = _cosine((tl.arange(0, 8).to(tl.float32) + 0.5) * 0.39269908169872414)
    f = logistic(w, b, 0.5 + 0.5 * t) * 0.25
    t2 = 2.0 * t * t - 1.0
    t3, t4 = 2.0 * t * t2 - t, 2.0 * t2 * t2 - 1.0
    t5, t6 = 2.0 * t * t4 - t3, 2.0 * t3 * t3 - 1.0
    c0, c1, c2 = 0.5 * tl.sum(f), tl.sum(f * t), tl.sum(f * t2)
    c3, c4, c5, c6 = tl.sum(f * t3), tl.sum(f * t4), tl.sum(f * t5), tl.sum(f * t6)
    return (
        c0 - c2 + c4 - c6, c1 - 3.0 * c3 + 5.0 * c5, 2.0 * c2 - 8.0 * c4 + 18.0 * c6, 4.0 * c3 - 20.0 * c5,
        8.0 * c4 - 48.0 * c6, 16.0 * c5, 32.0 * c6,
    )  # fmt: skip


@triton.jit
def _inverses(x):  # type: ignore[no-untyped-def]
    """1/x for x in [1, 2⁶³], of two neighbours at the price of one."""
    if NATIVE:
        return tl.inline_asm_elementwise(
            """{ .reg .f32 t; mul.rn.f32 t, $2, $3; rcp.approx.ftz.f32 t, t;
            mul.rn.f32 $0, t, $3; mul.rn.f32 $1, t, $2; }""",
            "=&f,=&f,f,f", [x], dtype=tl.float32, is_pure=True, pack=2,
        )  # fmt: skip
    else:  # noqa: RET505
        return 1.0 / x


@triton.jit
def _tanh(x):  # type: ignore[no-untyped-def]
    """With a relative error of up to 2⁻¹¹."""
    if NATIVE:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:  # noqa: RET505
        return 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0


@triton.jit
def robust(g, q2, w, b, mu, narrow, k0, k1, k2, k3, k4, k5, k6, coarse: tl.constexpr):  # type: ignore[no-untyped-def]
    """v·[k̂(1−p^q2)/q2 + (1−k̂)p] for q2 ≤ 0.0125; k̂ as `fitted`, or where `coarse` by a tanh good to 2⁻⁹ if k̂ ≥ 0.1."""
    x = tl.minimum(g * -1.4426950408889634, 126.0)
    e = exp2(tl.minimum(x, 62.0))
    d = 1.0 + e
    p = _inverses(d)
    q = e * p
    # −log₂ p = s, and (1−p^q)/q a polynomial in it: (1−exp(−x))/x on [0, 1.1], relative error 4e-6.
    s, square = tl.maximum(log2(d), x), q2 * q2
    yes = s * (square * square * 0.0008570287252574562) + square * q2 * -0.009020901666309577
    yes = yes * s + square * 0.055193109129478495
    yes = yes * s + q2 * -0.24017448896990537
    yes = (yes * s + 0.6931471805599453) * s
    left = 1.0 - q2 * yes
    if coarse:
        k = 0.5 + 0.5 * _tanh((0.5 * w) * p + 0.5 * b)
    else:
        t = p - q
        k = t * k6 + k5
        k = k * t + k4
        k = k * t + k3
        k = k * t + k2
        k = k * t + k1
        k = k * t + k0
    v = bell(p, mu, narrow)
    return v * (p + k * (yes - p)), v * q * (p - k * (left + p))


@triton.jit
def shifted_fourth(g, margin):  # type: ignore[no-untyped-def]
    """p_m⁴(−log(1−p_m)), p_m = max(p−m, 0), m > 0: one reciprocal for 1/(1+e) and (1−p)/(1−p_m)."""
    e = exp2(tl.minimum(g * -1.4426950408889634, 62.0))
    d, f = 1.0 + e, margin + (1.0 + margin) * e
    both = reciprocal(d * f)
    p = both * f
    q = e * p
    cost = log2(q + margin) * -0.6931471805599453
    base = tl.maximum(p - margin, 0.0)
    cube = base * base * base
    return cube * (base * cost), cube * p * (base * (both * d * e) + 4.0 * q * cost)
