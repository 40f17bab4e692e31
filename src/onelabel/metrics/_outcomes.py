"""Counting right and wrong yes-or-no predictions.

A score above its threshold is a positive prediction (`score > threshold`), as in LASD.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from onelabel.metrics._arrays import Inputs, as_tensor, on_host, wide


class Outcomes(NamedTuple):
    """Numbers of entries: TP, FP, FN, TN."""

    hit: Tensor
    over: Tensor
    miss: Tensor
    right: Tensor


def outcomes(inputs: Inputs, threshold: Any, *, dim: int = -2, name: str = "threshold") -> Outcomes:
    """Count the four outcomes over examples (`dim=-2`) or over classes (`dim=-1`)."""
    scores, true, mask, _ = inputs
    said = scores > cut(name, threshold, scores)

    def count(which: Tensor) -> Tensor:
        return (which if mask is None else which & mask).sum(dim)

    hit, positives = count(said & true), count(true.expand_as(said))
    accepted, total = count(said), count(torch.ones_like(said))
    return Outcomes(hit, accepted - hit, positives - hit, total - accepted - positives + hit)


def cut(name: str, threshold: Any, scores: Tensor) -> Any:
    """A threshold for all classes, or one for each, that `scores` can be compared with."""
    if isinstance(threshold, (int, float)):  # a tensor of it would make the host wait for the GPU
        if math.isnan(threshold):
            raise ValueError(f"{name} is NaN; expected a number or one per class")
        return threshold
    each, _ = as_tensor(name, threshold, scores.device)
    classes, models = scores.shape[-1:], scores.shape[:-2]
    if each.shape not in ((), (1,), classes, models + classes, (*models, 1)):
        raise ValueError(f"{name} has shape {tuple(each.shape)}; expected a number or {tuple(classes)}, one per class")
    if on_host(each) and bool(each.isnan().any()):
        raise ValueError(f"{name} is NaN; expected a number or one per class")
    return each.unsqueeze(-2) if each.ndim else each


def ratio(part: Tensor, whole: Tensor, nothing: float) -> Tensor:
    """part / whole, and `nothing` where the whole is 0."""
    dtype = wide(part.device)
    return torch.where(whole > 0, part.to(dtype) / whole.clamp(min=1).to(dtype), nothing)
