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
    ROBUST_LINEAR,
    SHIFTED,
    SHIFTED_DETACHED,
    THRESHOLD,
    THRESHOLD_HILL,
)
from onelabel.kernels.torchwords import (
    absolute,
    choose,
    constexpr,
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


def power_nll(g: Any, e: Any, u: Any, r: Any, gamma: Any, detached: constexpr) -> Any:
    """(1−p)^γ(−log p)."""
    own, other = softplus(-g, u), softplus(g, u)
    focus = exp(-gamma * other)
    if detached:
        slope = -focus * sigmoid(-g, e, r)
    else:
        slope = -focus * (gamma * sigmoid(g, e, r) * own + sigmoid(-g, e, r))
    return focus * own, slope


def generalised(g: Any, e: Any, u: Any, r: Any, q: Any) -> Any:
    """(1−p^q)/q, −log p at q = 0."""
    own = softplus(-g, u)
    less = expm1(-q * own)
    share = 1.0 / choose(q == 0, 1.0, q)
    return choose(q == 0, own, -share * less), -(less + 1) * sigmoid(-g, e, r)


def shifted(g: Any, e: Any, u: Any, r: Any, gamma: Any, margin: Any, log_margin: Any, detached: constexpr) -> Any:
    """p_m^γ(−log(1−p_m)), p_m = max(p−m, 0)."""
    p, q = sigmoid(g, e, r), sigmoid(-g, e, r)
    over = p > margin
    base = where(over, p - margin, 1.0)
    complement = logaddexp(-softplus(g, u), log_margin)
    focus = power(base, gamma)
    slope = where(q + margin > 1e-37, q * reciprocal(q + margin), 1.0)  # q/(q+m), where m = 0 and q has vanished too
    if not detached:
        slope = slope - gamma * reciprocal(base) * complement * q
    slope = slope * focus * p
    return where(over, -focus * complement, 0.0), where(over, slope, 0.0)


def hill(p: Any, q: Any, lam: Any) -> Any:
    """(λ−p)p²."""
    return (lam - p) * p * p, (2 * lam - 3 * p) * p * p * q


def robust(
    g: Any, e: Any, u: Any, r: Any, q2: Any, q3: Any, w: Any, b: Any, mu: Any, sigma: Any, linear: constexpr
) -> Any:
    """v·[k̂(1−p^q2)/q2 + (1−k̂)(1−(1−p)^q3)/q3], k̂ = σ(w·p + b), v = exp(−(p−μ)²/(2σ²)); `linear`: q3 = 1."""
    p = sigmoid(g, e, r)
    x = w * p + b
    xe, _, xr = parts(x)
    k = sigmoid(x, xe, xr)
    v = exp((p - mu) * (p - mu) * (-0.5 / (sigma * sigma)))
    yes, yes_slope = generalised(g, e, u, r, q2)
    if linear:
        no, no_slope = p, p * sigmoid(-g, e, r)
    else:
        no, no_slope = generalised(-g, e, u, r, q3)
        no_slope = -no_slope
    return v * (no + k * (yes - no)), v * (no_slope + k * (yes_slope - no_slope))


def entropy(g: Any, e: Any, u: Any, r: Any) -> Any:
    """H(p)."""
    a = absolute(g)
    s = sigmoid(-a, e, r)
    return softplus(-a, u) + a * s, -g * (s - s * s)


def entropy_eps(p: Any, q: Any, eps: Any) -> Any:
    """−p log(p+ε) − (1−p) log(1−p+ε)."""
    yes, no = -log(p + eps), -log(q + eps)
    return p * yes + q * no, p * q * (yes - no - p / (p + eps) + q / (q + eps))


def curve(kind: constexpr, g: Any, e: Any, u: Any, r: Any, a: Any, b: Any, c: Any, d: Any, f: Any, h: Any) -> Any:
    """A curve of `form` with its numbers in the order a … h."""
    if kind >= MIRROR:
        g = -g
    if kind % MIRROR == PLAIN:
        value, slope = softplus(-g, u), -sigmoid(-g, e, r)
    elif kind % MIRROR == NLL:
        value, slope = a * softplus(-g, u), -a * sigmoid(-g, e, r)
    elif kind % MIRROR == MIX:
        value = c * (softplus(-g, u) + a * b * g)
        slope = c * (a * b - sigmoid(-g, e, r))
    elif kind % MIRROR == NLL_EPS:
        p = sigmoid(g, e, r)
        value, slope = -a * log(p + b), -a * p * sigmoid(-g, e, r) / (p + b)
    elif kind % MIRROR == MIX_EPS:
        p, q = sigmoid(g, e, r), sigmoid(-g, e, r)
        value = -c * ((1 - a * b) * log(p + d) + a * b * log(q + d))
        slope = c * p * q * (a * b / (q + d) - (1 - a * b) / (p + d))
    elif kind % MIRROR == ENTROPY:
        value, slope = entropy(g, e, u, r)
        value, slope = a * value, a * slope
    elif kind % MIRROR == ENTROPY_EPS:
        value, slope = entropy_eps(sigmoid(g, e, r), sigmoid(-g, e, r), b)
        value, slope = a * value, a * slope
    elif kind % MIRROR == FOCAL:
        value, slope = power_nll(g, e, u, r, a, False)
        value, slope = b * value, b * slope
    elif kind % MIRROR == FOCAL_DETACHED:
        value, slope = power_nll(g, e, u, r, a, True)
        value, slope = b * value, b * slope
    elif kind % MIRROR == MARGIN:
        x = g - b
        xe, xl, xr = parts(x)
        value, slope = power_nll(x, xe, xl, xr, a, False)
    elif kind % MIRROR == SHIFTED:
        value, slope = shifted(g, e, u, r, a, b, log(b), False)
    elif kind % MIRROR == SHIFTED_DETACHED:
        value, slope = shifted(g, e, u, r, a, b, log(b), True)
    elif kind % MIRROR == HILL:
        value, slope = hill(sigmoid(g, e, r), sigmoid(-g, e, r), a)
    elif kind % MIRROR == THRESHOLD:
        # τ, gate, γ₊, λ₊, γ₋, λ₋
        yes, yes_slope = power_nll(g, e, u, r, c, False)
        no, no_slope = power_nll(-g, e, u, r, f, False)
        sure = over(sigmoid(g, e, r), a, b)
        value, slope = where(sure, d * yes, h * no), where(sure, d * yes_slope, -h * no_slope)
    elif kind % MIRROR == THRESHOLD_HILL:
        # τ, gate, γ₊, λ₊, λ of Hill
        yes, yes_slope = power_nll(g, e, u, r, c, False)
        no, no_slope = hill(sigmoid(g, e, r), sigmoid(-g, e, r), f)
        sure = over(sigmoid(g, e, r), a, b)
        value, slope = where(sure, d * yes, no), where(sure, d * yes_slope, no_slope)
    elif kind % MIRROR == GENERALISED:
        value, slope = generalised(g, e, u, r, a)
    elif kind % MIRROR == ROBUST:
        value, slope = robust(g, e, u, r, a, b, c, d, f, h, False)
    elif kind % MIRROR == ROBUST_LINEAR:
        value, slope = robust(g, e, u, r, a, b, c, d, f, h, True)
    elif kind % MIRROR == PROBABILITY:
        p = sigmoid(g, e, r)
        value, slope = a * p, a * p * sigmoid(-g, e, r)
    else:
        value, slope = nothing(g), nothing(g)
    if kind >= MIRROR:
        slope = -slope
    return value, slope


def soft_target(g: Any, e: Any, u: Any, r: Any, target: Any, weight: Any) -> Any:
    """weight·(−t log p − (1−t) log(1−p))."""
    return weight * (softplus(g, u) - target * g), weight * (sigmoid(g, e, r) - target)
