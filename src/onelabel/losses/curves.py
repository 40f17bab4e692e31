"""Curves: functions of one logit g (p = σ(g)), evaluated in log space, and the forms that join them into a loss.

Almost every loss of the field is, entry by entry (Chen et al. 2024, Sec. 3.3–3.4),

    v(p) · [ 1[z=+1]·L1 + 1[z=0]·( k̂(p)·L2 + (1−k̂(p))·L3 ) + 1[z=−1]·L4 ]

with z the observed label, k̂ a soft pseudo-label and v a weight (no gradient through either), L1..L4 curves. A curve of
the positive class at −g is that of the negative class: ``nll(-g)`` is −log(1−p). Where both signs follow one curve it
is evaluated once, at the logit of being wrong (:func:`against`), with numbers chosen by observed label (:func:`pick`);
where they differ, :func:`unified` joins them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

from onelabel.contract import Number
from onelabel.kernels.torchwords import READ_OFF


def unified(
    observed: Tensor,
    *,
    positive: Tensor,
    unknown: Tensor,
    negative: Tensor,
    weight: Tensor | float = 1.0,
) -> Tensor:
    """Join the curves: `positive` where z=+1, `weight`·`unknown` where z=0, `negative` where z=−1."""
    return torch.where(observed > 0, positive, torch.where(observed < 0, negative, scale(weight, unknown)))


def same(*numbers: Number) -> bool:
    """Whether these are all one float; the numbers of a stack are not looked at, that would stop the host."""
    return not any(isinstance(n, Tensor) for n in numbers) and len(set(numbers)) == 1


def against(positive: Tensor, g: Tensor) -> Tensor:
    """The logit of being wrong, u: −g where an entry counts as `positive` (a mask), g where it counts as negative."""
    return g * torch.ones_like(positive, dtype=g.dtype).masked_fill_(positive, -1.0)


def pick(observed: Tensor, *, like: Tensor, positive: Number, unknown: Number, negative: Number = 1.0) -> Number:
    """One number per entry by its observed label, in the precision of `like`; a float where all three are the same."""
    if same(positive, unknown, negative):
        return positive
    if isinstance(positive, Tensor) or isinstance(unknown, Tensor) or isinstance(negative, Tensor):
        numbers = (n if isinstance(n, Tensor) else like.new_full((), n) for n in (positive, unknown, negative))
        positive, unknown, negative = numbers
        return torch.where(observed > 0, positive, torch.where(observed < 0, negative, unknown))
    picked = torch.full_like(observed, unknown, dtype=like.dtype)
    return picked.masked_fill_(observed > 0, positive).masked_fill_(observed < 0, negative)


def scale(factor: Number, curve: Tensor) -> Tensor:
    """factor·curve, without a pass over the entries where the factor is 1."""
    return curve if same(factor, 1.0) else factor * curve


def soft(target: Tensor | Number, positive: Tensor, negative: Tensor) -> Tensor:
    """k̂·L2 + (1−k̂)·L3, no gradient through k̂."""
    target = target.detach() if isinstance(target, Tensor) else target
    return target * positive + (1 - target) * negative


def cost(u: Tensor, *, eps: float = 0.0) -> Tensor:
    """−log(1−σ(u)), the cross-entropy of an entry at its logit of being wrong; with `eps` −log(1−σ(u) + eps)."""
    # Above its threshold torch's softplus is the identity: from 40 on it is, in float64 too. It is also faster than
    # logsigmoid, which torch spreads over all CPU threads however few the entries.
    return -torch.log(torch.sigmoid(-u) + eps) if eps else softplus(u, threshold=40)


def nll(g: Tensor, *, eps: float = 0.0) -> Tensor:
    """−log p. With `eps`, the −log(p + eps) of the authors' programs."""
    return cost(-g, eps=eps)


def entropy(g: Tensor, *, eps: float = 0.0) -> Tensor:
    """H(p) = −p log p − (1−p) log(1−p), even in g, so written in |g| where no term cancels another."""
    if eps:
        p = torch.sigmoid(g)
        return p * nll(g, eps=eps) + (1 - p) * nll(-g, eps=eps)
    a = g.abs()
    return nll(a) + a * torch.sigmoid(-a)


def generalised(g: Tensor, q: Number) -> Tensor:
    """(1−p^q)/q, the generalised cross-entropy; −log p at q = 0, 1−p at q = 1."""
    if isinstance(q, Tensor):
        safe = torch.where(q == 0, 1.0, q)
        loss = nll(g)
        return torch.where(q == 0, loss, _rest(-safe * loss) / safe)
    if q == 0:
        return nll(g)
    if q == 1:  # not sigmoid: near 1 its slope is read off its value, too
        return torch.exp(-nll(-g))
    return torch.expm1(-q * nll(g)) / -q if q <= READ_OFF else _rest(-q * nll(g)) / q


def _rest(x: Tensor) -> Tensor:
    """1 − eˣ for x ≤ 0. Autograd reads the slope of expm1 off its value, which near −1 has lost eˣ."""
    return torch.where(x > -1, -torch.expm1(x), 1 - torch.exp(x))


def power(g: Tensor, gamma: Number) -> Tensor:
    """p^γ."""
    return torch.exp(-gamma * nll(g))


def focused(u: Tensor, gamma: Number, *, detach: bool = False) -> Tensor:
    """σ(u)^γ·(−log(1−σ(u))): the cost weighted by how wrong an entry is; `detach` stops the weight's gradient."""
    if same(gamma, 0.0):
        return cost(u)
    return power(u.detach() if detach else u, gamma) * cost(u)


def shifted(g: Tensor, margin: Number) -> Tensor:
    """log(1 − max(p−m, 0)), the log-complement of the shifted probability p_m; log(1−p) at m = 0."""
    if isinstance(margin, Tensor):
        log_m = margin.log()
    else:
        log_m = g.new_full((), math.log(margin) if margin else -math.inf)
    return torch.logaddexp(-cost(g), log_m).clamp(max=0)
