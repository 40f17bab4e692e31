"""The losses once more, from shared/methods.md, in plain Python floats: slow, and nothing shared with the package.

A loss is a function of logits and observed labels (lists of rows) and of `still`, the logits that whatever carries no
gradient is computed from; :func:`slopes` moves the former and leaves the latter. Papers' formulas unless
``variant="reference"``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

Rows = list[list[float]]
Entry = Callable[[float, int, float], float]  # logit, label, the still logit
Loss = Callable[[Rows, list[list[int]], Rows], float]


def sigma(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def log_sigma(x: float) -> float:
    return -math.log1p(math.exp(-x)) if x >= 0 else x - math.log1p(math.exp(x))


def minus_log(x: float, eps: float = 0.0) -> float:
    """−log σ(x), or −log(σ(x) + eps)."""
    return -math.log(sigma(x) + eps) if eps else -log_sigma(x)


def power(x: float, gamma: float) -> float:
    """σ(x)^γ."""
    return math.exp(gamma * log_sigma(x))


def by_label(positive: Any, unknown: Any, negative: Any = lambda g, s: minus_log(-g)) -> Entry:
    return lambda g, z, s: {1: positive, 0: unknown, -1: negative}[z](g, s)


def entries_mean(entry: Entry) -> Loss:
    def loss(g: Rows, z: list[list[int]], still: Rows) -> float:
        each = [entry(*x) for rows in zip(g, z, still, strict=True) for x in zip(*rows, strict=True)]
        return math.fsum(each) / len(each)

    return loss


def rows_mean(entry: Entry) -> Loss:
    def loss(g: Rows, z: list[list[int]], still: Rows) -> float:
        return entries_mean(entry)(g, z, still) * len(g[0])

    return loss


def slopes(loss: Loss, g: Rows, z: list[list[int]], h: float = 1e-3) -> Rows:
    """The gradient by five-point differences, exact to h⁴."""
    out = [[0.0] * len(row) for row in g]
    for i, row in enumerate(g):
        for j, x in enumerate(row):
            at = {}
            for k in (-2, -1, 1, 2):
                moved = [list(r) for r in g]
                moved[i][j] = x + k * h
                at[k] = loss(moved, z, g)
            out[i][j] = (8 * (at[1] - at[-1]) - (at[2] - at[-2])) / (12 * h)
    return out


def eps_of(variant: str, eps: float = 1e-5) -> float:
    return eps if variant == "reference" else 0.0


# -- A. element-wise ------------------------------------------------------------------------------------------------


def smoothed(x: float, epsilon: float, variant: str) -> float:
    """(1−ε/2)(−log σ(x)) + (ε/2)(−log σ(−x)); the published programs flip ε itself."""
    flip, eps = (epsilon if variant == "reference" else epsilon / 2), eps_of(variant)
    return (1 - flip) * minus_log(x, eps) + flip * minus_log(-x, eps)


def bce(*, smoothing: float = 0.0, variant: str = "paper", **_: Any) -> Loss:
    return entries_mean(
        by_label(
            lambda g, s: smoothed(g, smoothing, variant),
            lambda g, s: 0.0,
            lambda g, s: smoothed(-g, smoothing, variant),
        )
    )


def iu(*, normalise: str = "all", variant: str = "paper") -> Loss:
    if normalise == "all":
        return bce(variant=variant)

    def loss(g: Rows, z: list[list[int]], still: Rows) -> float:
        total = 0.0
        for row, labels in zip(g, z, strict=True):
            costs = [minus_log(y * x, eps_of(variant)) for x, y in zip(row, labels, strict=True) if y]
            total += sum(costs) / len(costs) if costs else 0.0
        return total / len(g)

    return loss


def an(
    *, positive_smoothing: float = 0.0, unknown_smoothing: float = 0.0, gamma: float = 1.0, variant: str = "paper"
) -> Loss:
    return entries_mean(
        by_label(
            lambda g, s: smoothed(g, positive_smoothing, variant),
            lambda g, s: gamma * smoothed(-g, unknown_smoothing, variant),
            lambda g, s: minus_log(-g, eps_of(variant)),
        )
    )


def pseudo_negative(*, draws: Rows) -> Loss:
    """`draws`: one random number per entry; a row's unknown entry with the largest is the one that counts."""

    def loss(g: Rows, z: list[list[int]], still: Rows) -> float:
        total = 0.0
        for row, labels, numbers in zip(g, z, draws, strict=True):
            unknown = [i for i, y in enumerate(labels) if y == 0]
            total += sum(minus_log(y * x) for x, y in zip(row, labels, strict=True) if y)
            if unknown:
                total += minus_log(-row[max(unknown, key=lambda i: numbers[i])])
        return total / (len(g) * len(g[0]))

    return loss


def focal(*, alpha: float | None = 0.75, gamma: float = 2.0) -> Loss:
    weights = (1.0, 1.0) if alpha is None else (alpha, 1 - alpha)
    return entries_mean(
        by_label(
            lambda g, s: weights[0] * power(-g, gamma) * minus_log(g),
            lambda g, s: weights[1] * power(g, gamma) * minus_log(-g),
        )
    )


def asl(
    *, gamma_positive: float = 0.0, gamma_negative: float = 4.0, margin: float = 0.0, detach_focus: bool = False
) -> Loss:
    def unknown(g: float, s: float) -> float:
        shifted = max(sigma(s if detach_focus else g) - margin, 0.0)
        if margin == 0:
            return power(s if detach_focus else g, gamma_negative) * minus_log(-g)
        return shifted**gamma_negative * -math.log(min(sigma(-g) + margin, 1.0))

    return entries_mean(
        by_label(lambda g, s: power(-(s if detach_focus else g), gamma_positive) * minus_log(g), unknown)
    )


def focal_margin(g: float, margin: float | None, gamma: float) -> float:
    return minus_log(g) if margin is None else power(margin - g, gamma) * minus_log(g - margin)


def hill(*, lam: float = 1.5, margin: float | None = 1.0, gamma: float = 2.0) -> Loss:
    return entries_mean(
        by_label(lambda g, s: focal_margin(g, margin, gamma), lambda g, s: (lam - sigma(g)) * sigma(g) ** 2)
    )


def splc(
    *,
    tau: float = 0.6,
    margin: float | None = 1.0,
    gamma: float = 2.0,
    negative: str = "focal",
    started: bool = True,
) -> Loss:
    def unknown(g: float, s: float) -> float:
        if started and sigma(s) > tau:
            return power(-g, gamma) * minus_log(g)
        return (1.5 - sigma(g)) * sigma(g) ** 2 if negative == "hill" else power(g, gamma) * minus_log(-g)

    return entries_mean(by_label(lambda g, s: focal_margin(g, margin, gamma), unknown))


def em(*, alpha: float = 0.2, variant: str = "paper", sign: int = -1) -> Loss:
    eps = eps_of(variant)

    def entropy(g: float, s: float) -> float:
        return sign * alpha * (sigma(g) * minus_log(g, eps) + sigma(-g) * minus_log(-g, eps))

    return entries_mean(by_label(lambda g, s: minus_log(g, eps), entropy, lambda g, s: minus_log(-g, eps)))


def entmin(**hyper: Any) -> Loss:
    return em(**hyper, sign=1)


def drawn(row: list[float], labels: list[int], weights: list[float]) -> float:
    """log P of a row's observed labels: its label sets are summed, each names one of its labels by their weights."""
    known = math.fsum(log_sigma(y * x) for x, y in zip(row, labels, strict=True) if y)
    if labels.count(1) != 1:
        return known
    others = [(x, w) for x, y, w in zip(row, labels, weights, strict=True) if y == 0]
    own, total = weights[labels.index(1)], 0.0
    for present in itertools.product((1, -1), repeat=len(others)):
        chance = math.prod(sigma(s * x) for s, (x, _) in zip(present, others, strict=True))
        total += chance * own / (own + math.fsum(w for s, (_, w) in zip(present, others, strict=True) if s > 0))
    return known + math.log(total)


def roll_call(
    *, alpha: float | None = None, gamma: float = 0.3, pull: str = "coin", named: list[int] | None = None
) -> Loss:
    """`named`: how often each class is observed in training, where that is known."""

    def left_open(x: float) -> float:
        if pull == "coin":
            return (minus_log(x) + minus_log(-x)) / 2
        return -(sigma(x) * minus_log(x) + sigma(-x) * minus_log(-x))

    def loss(g: Rows, z: list[list[int]], still: Rows) -> float:
        weights = [float(n) ** gamma for n in named or [1] * len(g[0])]
        total = 0.0
        for row, labels in zip(g, z, strict=True):
            pulled = (0.2 / len(row)) ** 0.5 if alpha is None else alpha
            total += pulled * math.fsum(left_open(x) for x, y in zip(row, labels, strict=True) if y == 0)
            total -= drawn(row, labels, weights)
        return total / (len(g) * len(g[0]))

    return loss


def generalised(x: float, q: float) -> float:
    """(1−σ(x)^q)/q."""
    return -math.expm1(q * log_sigma(x)) / q if q else minus_log(x)


def gr(
    *,
    q1: float = 0.01,
    q2: float = 0.01,
    q3: float = 1.0,
    w: float = 2.0,
    b: float = -2.0,
    mu: float = 0.8,
    sigma_: float = 0.5,
    variant: str = "paper",
) -> Loss:
    """w, b, μ, σ as they stand in the epoch (:func:`gr_schedule`)."""

    def unknown(g: float, s: float) -> float:
        p = sigma(s)
        k, v = sigma(w * p + b), math.exp(-((p - mu) ** 2) / (2 * sigma_**2))
        return v * (k * generalised(g, q2) + (1 - k) * generalised(-g, q3))

    eps = eps_of(variant, 1e-7)
    return entries_mean(by_label(lambda g, s: minus_log(g, eps) if eps else generalised(g, q1), unknown))


def gr_schedule(name: str, end: float, epoch: int, epochs: int, variant: str) -> float:
    """x0 + (xT − x0)·t/T with the starts of the authors' program."""
    first = {"w": 0.0, "b": -2.0, "mu": 0.5, "sigma": 2.0}[name]
    if variant == "reference":
        share = (epoch if name in "wb" else epoch + 1) / epochs
    else:
        share = epoch / (epochs - 1) if epochs > 1 else 0.0
    return first + (end - first) * share


def lasd(
    *,
    lam_positive: float = 0.1,
    lam_negative: float | None = None,
    expected_positives: float = 1.5,
    tau: float = 0.9,
    alpha: float = 0.7,
    gamma_positive: float = 0.0,
    gamma_negative: float = 4.0,
    views: tuple[Rows, Rows] | None = None,
) -> Loss:
    def loss(g: Rows, z: list[list[int]], still: Rows) -> float:
        k, n = expected_positives, len(g[0])
        minus = (1 + lam_positive * (k - 1)) / (n - k) if lam_negative is None else lam_negative

        def unknown(x: float, s: float) -> float:
            if sigma(s) > tau:
                return lam_positive * power(-x, gamma_positive) * minus_log(x)
            return minus * power(x, gamma_negative) * minus_log(-x)

        total = rows_mean(by_label(lambda x, s: power(-x, gamma_positive) * minus_log(x), unknown))(g, z, still)
        if views is None:
            return total
        apart = 0.0
        for one, two in ((g, views[0]), (g, views[1]), (views[0], views[1])):
            for a, b in zip(one, two, strict=True):
                apart += sum((sigma(x) - sigma(y)) ** 2 for x, y in zip(a, b, strict=True))
        return total + alpha * apart / len(g)

    return loss


def las(*, expected_positives: float = 1.5, **hyper: Any) -> Loss:
    """λ = 1/(L−k), nothing found."""
    return lasd(expected_positives=expected_positives, lam_positive=0.0, tau=2.0, **hyper)


# -- D. batch-level -------------------------------------------------------------------------------------------------


def pr(*, variant: str = "paper") -> Loss:
    def loss(g: Rows, z: list[list[int]], still: Rows) -> float:
        total = 0.0
        for row, labels in zip(g, z, strict=True):
            for x, y in zip(row, labels, strict=True):
                if y < 0:
                    total += minus_log(-x)
                if y > 0:
                    for other, label in zip(row, labels, strict=True):
                        total += max(0.0, 1 - sigma(x) + sigma(other)) if label == 0 else 0.0
        return total / (len(g) * (len(g[0]) if variant == "reference" else 1))

    return loss


def epr(*, expected_positives: float = 1.5, lam: float = 1.0, variant: str = "paper") -> Loss:
    def loss(g: Rows, z: list[list[int]], still: Rows) -> float:
        n, classes = len(g), len(g[0])
        known = sum(
            minus_log(y * x, eps_of(variant))
            for row, labels in zip(g, z, strict=True)
            for x, y in zip(row, labels, strict=True)
            if y
        )
        found = sum(sigma(x) for row in g for x in row) / n
        return (
            known / n / (classes if variant == "reference" else 1) + lam * ((found - expected_positives) / classes) ** 2
        )

    return loss


def penalised(*, order: int, strength: float, theta: list[float]) -> Loss:
    size = sum(abs(t) if order == 1 else t * t for t in theta)
    return lambda g, z, still: an()(g, z, still) + strength * size
