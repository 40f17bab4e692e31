"""What an element-wise loss is made of: a curve for each observed sign, as kernels need it."""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass

from torch import Tensor

Number = float | Tensor

# Kinds of curve, see `closed.curve`. MIRROR + kind is the curve at −g.
ZERO, NLL, MIX, NLL_EPS, MIX_EPS, ENTROPY, ENTROPY_EPS, FOCAL, FOCAL_DETACHED, MARGIN = range(10)
SHIFTED, SHIFTED_DETACHED, HILL, THRESHOLD, THRESHOLD_HILL, GENERALISED, ROBUST, PROBABILITY, PLAIN, ROBUST_LINEAR = (
    range(10, 20)
)
THRESHOLD_SAME, SHIFTED_FOURTH = 20, 21
#: ROBUST_LINEAR with q2 ≤ 0.0125, |w| ≤ 2 and k̂ ≥ 0.1, which half precision can do cheaper.
ROBUST_GENTLE = 22
MIRROR = 32
#: Curves in whose value log(1 + exp(−|g|)) occurs once, times a number.
LOG_ONCE = frozenset((MIX, ENTROPY))
#: Curves that cost less than finding out whether they are all there is to evaluate.
CHEAP = frozenset((PLAIN, NLL))


@dataclass(frozen=True)
class Curve:
    """A kind and its numbers: floats, or tensors on the logits' device, of one element or of one per stacked model."""

    kind: int = ZERO
    numbers: tuple[Number, ...] = ()

    def mirrored(self) -> Curve:
        return Curve(self.kind ^ MIRROR, self.numbers) if self.kind != ZERO else self


@dataclass(frozen=True)
class Form:
    """An element-wise loss: `positive` where z=+1, `unknown` where z=0, `negative` where z=−1; added up and divided.

    The sum is multiplied by `factor`/B (`by_rows`) or `factor`/(B·L). `rows` (3×B or 3×M×B) multiplies the three
    curves row by row. `pull` s adds the gradient s·p·(1−p) to every entry: that of a penalty on Σp, whose value is the
    caller's business. `target` (the shape of the logits, float) replaces the unknown curve by
    `target_weight`·(−t log p − (1−t) log(1−p)) where it is not negative.
    """

    positive: Curve
    unknown: Curve
    negative: Curve
    by_rows: bool = False
    factor: float = 1.0
    rows: Tensor | None = None
    pull: Tensor | None = None
    target: Tensor | None = None
    target_weight: Number = 1.0

    def scale(self, batch: int, num_classes: int) -> float:
        return self.factor / max(batch if self.by_rows else batch * num_classes, 1)

    @property
    def two_sided(self) -> bool:
        """Whether observed negatives cost what unknown entries cost."""
        numbers = (*self.unknown.numbers, *self.negative.numbers)
        plain = self.rows is None and self.target is None and not any(isinstance(n, Tensor) for n in numbers)
        return plain and self.unknown == self.negative

    @property
    def curves(self) -> tuple[Curve, Curve, Curve]:
        return self.positive, self.unknown, self.negative


def nll(weight: Number = 1.0, *, eps: float = 0.0) -> Curve:
    """weight·(−log p)."""
    if eps:
        return Curve(NLL_EPS, (weight, eps))
    return Curve(PLAIN) if _is(weight, 1) else Curve(NLL, (weight,))


def mix(smoothing: Number, share: float, weight: Number = 1.0, *, eps: float = 0.0) -> Curve:
    """weight·[(1−h)(−log p) + h(−log(1−p))], h = smoothing·share."""
    if _is(smoothing, 0):
        return nll(weight, eps=eps)
    return Curve(MIX_EPS, (smoothing, share, weight, eps)) if eps else Curve(MIX, (smoothing, share, weight))


def focal(gamma: Number, weight: Number = 1.0, *, detached: bool = False) -> Curve:
    """weight·(1−p)^γ(−log p); `detached` leaves out the gradient of the first factor."""
    if _is(gamma, 0):
        return nll(weight)
    return Curve(FOCAL_DETACHED if detached else FOCAL, (gamma, weight))


def _is(value: Number, number: float) -> bool:
    return not isinstance(value, Tensor) and value == number


@functools.cache
def has_triton() -> bool:
    """Whether the kernels for GPUs can be imported; nothing is imported to find out."""
    return importlib.util.find_spec("triton") is not None
