"""The curves and their derivatives in closed form, written once for torch and for Triton.

The functions use only operators and the names imported from `torchwords`; `tiled` gives them Triton's words of the same
names and compiles them. So what the tests prove of them on a CPU in float64 is what runs on a GPU.

e = exp(−|g|), u = log(1+e), r = 1/(1+e) are computed once for both signs of g by `parts` (None where the words need no
such help). Every function returns (value, derivative with respect to g).
"""

from __future__ import annotations

from typing import Any

from onelabel.kernels.form import (
    ENTROPY,
    ENTROPY_EPS,
    FOCAL,
    FOCAL_DETACHED,
    GENERALISED,
    HILL,
    MARGIN,
    MIRROR,
    MIX,
    MIX_EPS,
    NLL,
    NLL_EPS,
    PLAIN,
    PROBABILITY,
    ROBUST,
    ROBUST_GENTLE,
    ROBUST_LINEAR,
    SHIFTED,
    SHIFTED_DETACHED,
    SHIFTED_FOURTH,
    THRESHOLD,
    THRESHOLD_HILL,
    THRESHOLD_SAME,
)
from onelabel.kernels.torchwords import (
    absolute,
    bell,
    constexpr,
    decay,
    inverse,
    less,
    log,
    log_complement,
    logistic,
    minus,
    minus_log,
    narrowed,
    nothing,
    parts,
    pick,
    power,
    reciprocal,
    rising,
    sided,
    sigmoid,
    sigmoids,
    softplus,
    times,
    turned,
    where,
)


def power_nll(g: Any, e: Any, u: Any, r: Any, gamma: Any, detached: constexpr) -> Any:
    """(1−p)^γ(−log p)."""
    own = softplus(minus(g), u)
    p, q = sigmoids(g, e, r)
    focus = rising(q, gamma, g, u)
    if detached:
        slope = minus(focus) * q
    else:
        slope = minus(focus) * (gamma * p * own + q)
    return focus * own, slope


def generalised(g: Any, e: Any, u: Any, r: Any, q: Any) -> Any:
    """(1−p^q)/q, −log p at q = 0."""
    value, left = decay(softplus(minus(g), u), q, inverse(q))
    return value, minus(left) * sigmoid(minus(g), e, r)


def shifted(g: Any, e: Any, u: Any, r: Any, gamma: Any, margin: Any, detached: constexpr, fourth: constexpr) -> Any:
    """p_m^γ(−log(1−p_m)), p_m = max(p−m, 0); `fourth`: γ = 4 and m > 0."""
    p, q = sigmoids(g, e, r)
    over, rest = p > margin, q + margin
    base = where(over, p - margin, 1.0)
    if fourth:
        # A small p_m costs precision here, but at p_m⁴ that is nothing.
        cost, share, focus = minus_log(rest), q * reciprocal(rest), base * base * base
    else:  # m = 0 and 1−p vanished: then 1−p over itself is 1
        gone = rest < 1e-37
        cost = where(gone, softplus(g, u), log_complement(base, where(gone, 1.0, rest)))
        share, focus = where(gone, 1.0, q * reciprocal(rest)), power(base, gamma - 1.0)
    slope = base * share
    if not detached:
        slope = slope + gamma * cost * q
    focus = where(over, focus, 0.0)
    return focus * base * cost, slope * focus * p


def hill(p: Any, q: Any, lam: Any) -> Any:
    """(λ−p)p²."""
    return (lam - p) * p * p, (2 * lam - 3 * p) * p * p * q


def robust(
    g: Any, e: Any, u: Any, r: Any, q2: Any, q3: Any, w: Any, b: Any, mu: Any, narrow: Any, linear: constexpr
) -> Any:
    """v·[k̂(1−p^q2)/q2 + (1−k̂)(1−(1−p)^q3)/q3], k̂ = σ(w·p + b), v = exp(−(p−μ)²/(2σ²)).

    Of σ comes `narrowed`(σ). `linear` is q3 = 1, and the number then given as q3 is `inverse`(q2).
    """
    p, q = sigmoids(g, e, r)
    k, v = logistic(w, b, p), bell(p, mu, narrow)
    if linear:
        yes, left = decay(softplus(minus(g), u), q2, q3)
        no, slope = p, q * (p - k * (left + p))
    else:
        yes, left = decay(softplus(minus(g), u), q2, inverse(q2))
        no, no_left = decay(softplus(g, u), q3, inverse(q3))
        slope = p * no_left - k * (left * q + p * no_left)
    return v * (no + k * (yes - no)), v * slope


def entropy(g: Any, e: Any, u: Any, r: Any) -> Any:
    """H(p)."""
    a = absolute(g)
    s = sigmoid(minus(a), e, r)
    return softplus(minus(a), u) + a * s, minus(g) * (s - s * s)


def entropy_eps(p: Any, q: Any, eps: Any) -> Any:
    """−p log(p+ε) − (1−p) log(1−p+ε)."""
    yes, no = -log(p + eps), -log(q + eps)
    return p * yes + q * no, p * q * (yes - no - p / (p + eps) + q / (q + eps))


def prepared(kind: constexpr, a: Any, b: Any, c: Any, d: Any, f: Any, h: Any) -> Any:
    """The numbers of a curve as `curve` takes them: what can be computed once for all entries."""
    if kind % MIRROR == ROBUST_LINEAR or kind % MIRROR == ROBUST_GENTLE:
        b = inverse(a)
    if kind % MIRROR == ROBUST_LINEAR or kind % MIRROR == ROBUST_GENTLE or kind % MIRROR == ROBUST:
        h = narrowed(h)
    return a, b, c, d, f, h


def curve(kind: constexpr, g: Any, e: Any, u: Any, r: Any, a: Any, b: Any, c: Any, d: Any, f: Any, h: Any) -> Any:
    """A curve of `form` with its numbers, `prepared`, in the order a … h."""
    if kind == MIRROR + PLAIN:
        return softplus(g, u), sigmoid(g, e, r)
    if kind == MIRROR + NLL:
        return a * softplus(g, u), a * sigmoid(g, e, r)
    if kind == MIRROR + MIX:
        return times(c, less(softplus(g, u), a * b, g)), times(c, sigmoid(g, e, r) - a * b)
    if kind >= MIRROR:
        g = minus(g)
    if kind % MIRROR == PLAIN:
        value, slope = softplus(minus(g), u), minus(sigmoid(minus(g), e, r))
    elif kind % MIRROR == NLL:
        value, slope = a * softplus(minus(g), u), -a * sigmoid(minus(g), e, r)
    elif kind % MIRROR == MIX:
        value = times(c, softplus(minus(g), u) + a * b * g)
        slope = times(c, a * b - sigmoid(minus(g), e, r))
    elif kind % MIRROR == NLL_EPS:
        p = sigmoid(g, e, r)
        value, slope = -a * log(p + b), -a * p * sigmoid(minus(g), e, r) / (p + b)
    elif kind % MIRROR == MIX_EPS:
        p, q = sigmoids(g, e, r)
        value = -c * ((1 - a * b) * log(p + d) + a * b * log(q + d))
        slope = c * p * q * (a * b / (q + d) - (1 - a * b) / (p + d))
    elif kind % MIRROR == ENTROPY:
        value, slope = entropy(g, e, u, r)
        value, slope = a * value, a * slope
    elif kind % MIRROR == ENTROPY_EPS:
        p, q = sigmoids(g, e, r)
        value, slope = entropy_eps(p, q, b)
        value, slope = a * value, a * slope
    elif kind % MIRROR == FOCAL:
        value, slope = power_nll(g, e, u, r, a, False)
        value, slope = times(b, value), times(b, slope)
    elif kind % MIRROR == FOCAL_DETACHED:
        value, slope = power_nll(g, e, u, r, a, True)
        value, slope = times(b, value), times(b, slope)
    elif kind % MIRROR == MARGIN:
        x = g - b
        xe, xl, xr = parts(x)
        value, slope = power_nll(x, xe, xl, xr, a, False)
    elif kind % MIRROR == SHIFTED:
        value, slope = shifted(g, e, u, r, a, b, False, False)
    elif kind % MIRROR == SHIFTED_DETACHED:
        value, slope = shifted(g, e, u, r, a, b, True, False)
    elif kind % MIRROR == SHIFTED_FOURTH:
        value, slope = shifted(g, e, u, r, 4.0, b, False, True)
    elif kind % MIRROR == HILL:
        p, q = sigmoids(g, e, r)
        value, slope = hill(p, q, a)
    elif kind % MIRROR == THRESHOLD:
        # τ, gate, γ₊, λ₊, γ₋, λ₋: the curve of either side at ±g, chosen before it is evaluated
        side = sided(sigmoid(g, e, r), a, b)
        value, slope = power_nll(turned(side, g), e, u, r, pick(side, c, f), False)
        weight = pick(side, d, h)
        value, slope = weight * value, turned(side, weight * slope)
    elif kind % MIRROR == THRESHOLD_SAME:
        # τ, gate, γ: the same curve on either side
        side = sided(sigmoid(g, e, r), a, b)
        value, slope = power_nll(turned(side, g), e, u, r, c, False)
        slope = turned(side, slope)
    elif kind % MIRROR == THRESHOLD_HILL:
        # τ, gate, γ₊, λ₊, λ of Hill
        yes, yes_slope = power_nll(g, e, u, r, c, False)
        p, q = sigmoids(g, e, r)
        no, no_slope = hill(p, q, f)
        side = sided(p, a, b)
        value, slope = pick(side, d * yes, no), pick(side, d * yes_slope, no_slope)
    elif kind % MIRROR == GENERALISED:
        value, slope = generalised(g, e, u, r, a)
    elif kind % MIRROR == ROBUST:
        value, slope = robust(g, e, u, r, a, b, c, d, f, h, False)
    elif kind % MIRROR == ROBUST_LINEAR or kind % MIRROR == ROBUST_GENTLE:
        value, slope = robust(g, e, u, r, a, b, c, d, f, h, True)
    elif kind % MIRROR == PROBABILITY:
        p = sigmoid(g, e, r)
        value = times(a, p)
        slope = value * sigmoid(minus(g), e, r)
    else:
        value, slope = nothing(g), nothing(g)
    if kind >= MIRROR:
        slope = minus(slope)
    return value, slope


def soft_target(g: Any, e: Any, u: Any, r: Any, target: Any, weight: Any) -> Any:
    """weight·(−t log p − (1−t) log(1−p))."""
    return weight * (softplus(g, u) - target * g), weight * (sigmoid(g, e, r) - target)


def weight_of_log(kind: constexpr, a: Any, c: Any) -> Any:
    """What u is multiplied by in the curves whose value holds it once, times a number (`form.LOG_ONCE`)."""
    if kind % MIRROR == MIX:
        weight = c
    else:
        weight = a
    return weight
