"""The words of `closed` for torch tensors."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import softplus as _softplus

constexpr: TypeAlias = int

absolute = torch.abs
where = torch.where
expm1 = torch.expm1
power = torch.pow
reciprocal = torch.reciprocal


def exp(x: Any) -> Any:
    return torch.exp(x) if isinstance(x, Tensor) else math.exp(x)


def log(x: Any) -> Any:
    if isinstance(x, Tensor):
        return torch.log(x)
    return math.log(x) if x else -math.inf


def logaddexp(x: Tensor, y: Any) -> Tensor:
    if not isinstance(y, Tensor):
        y = torch.tensor(y, dtype=x.dtype, device=x.device)
    return torch.logaddexp(x, y)


def parts(x: Tensor) -> tuple[None, None, None]:
    """torch's own functions are faster than e, u, r shared."""
    return None, None, None


def sigmoid(x: Tensor, e: object, r: object) -> Tensor:
    return torch.sigmoid(x)


def softplus(x: Tensor, u: object) -> Tensor:
    return _softplus(x, threshold=40)  # above it torch takes the identity, which float64 sees at 20


def choose(condition: Any, yes: Any, no: Any) -> Any:
    """`where` for a condition that may be a plain bool."""
    if isinstance(condition, Tensor):
        return torch.where(condition, yes, no)
    return yes if condition else no


def over(p: Tensor, threshold: Any, gate: Any) -> Tensor:
    """Probabilities above a threshold, none where the gate is 0."""
    return (p > threshold) & (gate > 0)


def nothing(x: Tensor) -> Tensor:
    return torch.zeros_like(x)
