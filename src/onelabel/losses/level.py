"""How many positives there are at all: the one direction in which a single label per row says little."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from onelabel.losses.draw import draw_log_likelihood, log_any, posterior
from onelabel.losses.sample import EXACT, Sample, basis, bent

#: Before any data k−1 is believed to be about 0.7, within a factor of e² (95%): decides only where scores say nothing.
PRIOR_MEAN, PRIOR_SPREAD = math.log(0.7), 1.0
PRIOR_K = 1 + math.exp(PRIOR_MEAN)
STEP = 0.25


def log_likelihood(logits: Tensor, observed: Tensor, *, doubt: str) -> Tensor:
    """log P(o | x) of every row as `losses.draw` has it, less log(1−P₀) where every row is known to have a positive."""
    value = draw_log_likelihood(logits, observed, exact=EXACT)
    return value - log_any(logits) if doubt == "either" else value


def objective(
    sample: Sample, a: Tensor, b: Tensor, knots: Tensor, keep: Tensor | None, doubt: str
) -> tuple[Tensor, Tensor]:
    """Log posterior of the observed labels up to a constant, and expected missing positives per row and class."""
    total, rows, missing = b.new_zeros(b.shape[:-1]), 0.0, torch.zeros_like(b)
    for part in sample.blocks():
        z = sample.observed[part]
        logits = bent(basis(sample.scores[..., part, :], knots), a, b)
        mask = b.new_ones(len(z)) if keep is None else keep[part].double()
        total = total + (mask * log_likelihood(logits, z, doubt=doubt)).sum(-1)
        q = posterior(logits, z, exact=EXACT)
        missing = missing + (mask[:, None] * torch.where(z == 0, q, 0.0)).sum(-2)
        rows += float(mask.sum())
    missing = missing / max(rows, 1.0)
    extra = missing.sum(-1).clamp(min=1e-9)
    return total - 0.5 * ((extra.log() - PRIOR_MEAN) / PRIOR_SPREAD) ** 2, missing


def level_step(sample: Sample, a: Tensor, b: Tensor, knots: Tensor, keep: Tensor | None, doubt: str) -> Tensor:
    """The shift of all intercepts that a parabola through three values of the objective calls best, at most 1."""
    low, here, high = (objective(sample, a, b + c, knots, keep, doubt)[0] for c in (-STEP, 0.0, STEP))
    slope, curve = (high - low) / (2 * STEP), (high + low - 2 * here) / STEP**2
    peaked = curve < -1e-9
    return torch.where(peaked, (-slope / curve.where(peaked, -1.0)).clamp(-1, 1), slope.sign())


def level_error(sample: Sample, a: Tensor, b: Tensor, knots: Tensor, doubt: str) -> Tensor:
    """Standard errors of missing positives per row, L and their sum, from the level's information alone."""
    points = [objective(sample, a, b + c, knots, None, doubt) for c in (-STEP, 0.0, STEP)]
    curve = -float(points[0][0] + points[2][0] - 2 * points[1][0]) / STEP**2
    spread = 1 / math.sqrt(max(curve, 0.05))
    each = (points[2][1] - points[0][1]) / (2 * STEP)
    return spread * torch.cat([each, each.sum().reshape(1)]).abs()
