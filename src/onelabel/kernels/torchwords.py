"""The words of `closed` for torch tensors."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import softplus as _softplus

constexpr: TypeAlias = int

absolute = torch.abs
minus = torch.neg
where = torch.where
power = torch.pow
reciprocal = torch.reciprocal
#: Up to this rate q, p^q is read off 1 − p^q: at a logit of −100 it is still 1/20, and nothing of it is lost.
READ_OFF = 0.03


def rising(q: Tensor, gamma: Any, g: Tensor, u: object) -> Tensor:
    """q^γ for q = 1−p, by multiplication where that will do."""
    if isinstance(gamma, Tensor) or gamma not in (1, 2, 4):
        return torch.exp(-gamma * softplus(g, u))
    for _ in range(int(gamma) // 2):
        q = q * q
    return q


def times(number: Any, x: Tensor) -> Tensor:
    """number·x, without a pass over the entries where the number is 1."""
    return x if not isinstance(number, Tensor) and number == 1 else number * x


def less(x: Tensor, rate: Any, g: Tensor) -> Tensor:
    """x − rate·g."""
    return x - rate * g if isinstance(rate, Tensor) else torch.sub(x, g, alpha=rate)


def inverse(rate: Any) -> Any:
    """1/rate, any number where that is 0."""
    if isinstance(rate, Tensor):
        return 1 / torch.where(rate == 0, 1.0, rate)
    return 1 / (rate or 1.0)


def decay(x: Tensor, rate: Any, share: Any) -> tuple[Tensor, Tensor]:
    """(1 − exp(−rate·x))/rate, which is x at rate 0, and exp(−rate·x); share is `inverse`(rate)."""
    less = torch.expm1(-rate * x)
    value = less * -share
    if isinstance(rate, Tensor):
        return torch.where(rate == 0, x, value), torch.exp(-rate * x)
    return value if rate else x, less + 1 if rate <= READ_OFF else torch.exp(-rate * x)


def narrowed(sigma: Any) -> Any:
    return math.sqrt(0.5) / sigma


def bell(x: Tensor, mu: Any, narrow: Any) -> Tensor:
    """exp(−(x−μ)²/(2σ²)), narrow = `narrowed`(σ)."""
    apart = (x - mu) * narrow
    return torch.exp(-apart * apart)


def log(x: Any) -> Any:
    if isinstance(x, Tensor):
        return torch.log(x)
    return math.log(x) if x else -math.inf


def minus_log(x: Tensor) -> Tensor:
    return -torch.log(x)


def log_complement(x: Tensor, rest: Tensor) -> Tensor:
    """−log(1−x), given rest = 1−x too."""
    return -torch.where(x < 0.5, torch.log1p(-x), torch.log(rest))


def parts(x: Tensor) -> tuple[None, None, None]:
    """torch's own functions are faster than e, u, r shared."""
    return None, None, None


def logistic(w: Any, b: Any, x: Tensor) -> Tensor:
    """σ(w·x + b)."""
    return torch.sigmoid(w * x + b)


def sigmoid(x: Tensor, e: object, r: object) -> Tensor:
    return torch.sigmoid(x)


def sigmoids(x: Tensor, e: object, r: object) -> tuple[Tensor, Tensor]:
    """σ(x) and σ(−x)."""
    return torch.sigmoid(x), torch.sigmoid(-x)


def softplus(x: Tensor, u: object) -> Tensor:
    return _softplus(x, threshold=40)  # above it torch takes the identity, which float64 sees at 20


# On a CPU torch is slow with masks: a side is +1 or −1, and chosen by arithmetic.


def sided(p: Tensor, threshold: Any, gate: Any) -> Tensor:
    """+1 for probabilities above a threshold, −1 for others, and for all where the gate is 0."""
    gate = torch.as_tensor(gate, device=p.device) > 0
    limit = torch.where(gate, torch.as_tensor(threshold, dtype=p.dtype, device=p.device), 2.0)
    return -torch.copysign(torch.ones((), dtype=p.dtype, device=p.device), limit - p)


def turned(side: Tensor, x: Tensor) -> Tensor:
    """x on the side +1, −x on the other."""
    return side * x


def pick(side: Tensor, yes: Any, no: Any) -> Any:
    """One of two, by the side."""
    if isinstance(yes, Tensor) or isinstance(no, Tensor):
        return torch.where(side > 0, yes, no)
    return no + (0.5 + 0.5 * side) * (yes - no) if yes != no else yes


def nothing(x: Tensor) -> Tensor:
    return torch.zeros_like(x)
