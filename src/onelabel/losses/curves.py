"""Curves: functions of one logit g (p = σ(g)), evaluated in log space, and the form that joins them into a loss.

Almost every loss of the field is, entry by entry (Chen et al. 2024, Sec. 3.3–3.4),

    v(p) · [ 1[z=+1]·L1 + 1[z=0]·( k̂(p)·L2 + (1−k̂(p))·L3 ) + 1[z=−1]·L4 ]

with z the observed label, k̂ a soft pseudo-label and v a weight (no gradient through either), L1..L4 curves. A curve of
the positive class at −g is that of the negative class: ``nll(-g)`` is −log(1−p).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

Number = float | Tensor


def unified(
    observed: Tensor,
    *,
    positive: Tensor,
    unknown: Tensor | float,
    negative: Tensor,
    weight: Tensor | float = 1.0,
) -> Tensor:
    """Join the curves: `positive` where z=+1, `weight`·`unknown` where z=0, `negative` where z=−1."""
    return torch.where(observed > 0, positive, torch.where(observed < 0, negative, weight * unknown))


def soft(target: Tensor | Number, positive: Tensor, negative: Tensor) -> Tensor:
    """k̂·L2 + (1−k̂)·L3, no gradient through k̂."""
    target = target.detach() if isinstance(target, Tensor) else target
    return target * positive + (1 - target) * negative


def nll(g: Tensor, *, eps: float = 0.0) -> Tensor:
    """−log p. With `eps`, the −log(p + eps) of the authors' programs."""
    return -torch.log(torch.sigmoid(g) + eps) if eps else softplus(-g)


def entropy(g: Tensor, *, eps: float = 0.0) -> Tensor:
    """H(p) = −p log p − (1−p) log(1−p), even in g, so written in |g| where no term cancels another."""
    if eps:
        p = torch.sigmoid(g)
        return p * nll(g, eps=eps) + (1 - p) * nll(-g, eps=eps)
    a = g.abs()
    return softplus(-a) + a * torch.sigmoid(-a)


def generalised(g: Tensor, q: Number) -> Tensor:
    """(1−p^q)/q, the generalised cross-entropy; −log p at q = 0."""
    log_p = logsigmoid(g)
    if isinstance(q, Tensor):
        safe = torch.where(q == 0, 1.0, q)
        return torch.where(q == 0, -log_p, -torch.expm1(safe * log_p) / safe)
    return -torch.expm1(q * log_p) / q if q else -log_p


def power(g: Tensor, gamma: Number) -> Tensor:
    """p^γ."""
    return torch.exp(gamma * logsigmoid(g))


def shifted(g: Tensor, margin: Number) -> Tensor:
    """log(1 − max(p−m, 0)), the log-complement of the shifted probability p_m; log(1−p) at m = 0."""
    log_m = torch.as_tensor(margin, dtype=g.dtype, device=g.device).log()
    return torch.logaddexp(logsigmoid(-g), log_m).clamp(max=0)
