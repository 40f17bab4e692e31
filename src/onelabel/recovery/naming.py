"""The draw of one label from a row's positives: what it says about the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from onelabel.probes.prior import _posterior

#: Entries (rows × classes) of a block: small enough for the cache.
BLOCK_ENTRIES = 150_000
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


@dataclass(frozen=True)
class Sample:
    """Rows that calibration learns from: each has exactly one observed positive."""

    scores: Tensor  #: n×L float64
    observed: Tensor  #: n×L int8

    def blocks(self) -> Iterator[slice]:
        step = max(1, BLOCK_ENTRIES // self.scores.shape[1])
        for start in range(0, len(self.scores), step):
            yield slice(start, start + step)


def basis(s: Tensor, knots: Tensor) -> Tensor:
    """J+1 × rows × classes: s and its hinges."""
    return torch.stack([s, *((s - knot).clamp(min=0) for knot in knots)])


def naming_posterior(p: Tensor, positive: Tensor, negative: Tensor, *, exact: int = 8) -> Tensor:
    """P(y_l=1 | x, the row's observed positive) of every entry, as `probes.prior._posterior` has it, for many classes.

    A row's `exact` likeliest entries enter the number of its other positives exactly, all others together by their
    sum: log(1−p+p·t) ≈ p·(t−1), off by p²/2 at most. With no more than `exact` classes it is exact.
    """
    if p.shape[1] <= exact:
        t, w = _quadrature(p.dtype)
        return _posterior(p, positive, negative, t, w)
    row, w, t, others, top, at, terms = others_of(p, positive, negative, exact=exact)
    a, b = (row.exp() * (w * t)).sum(1, keepdim=True), (row.exp() * w).sum(1, keepdim=True)
    q = others * a / (others * a + (1 - others) * b)
    without_it = (row[:, None] - terms).exp()
    a, b = (without_it * (w * t)).sum(-1), (without_it * w).sum(-1)
    q = q.scatter(1, at, top * a / (top * a + (1 - top) * b))
    return torch.where(positive, 1.0, q)


def _quadrature(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return torch.tensor((_NODES + 1) / 2, dtype=dtype), torch.tensor(_WEIGHTS / 2, dtype=dtype)


def others_of(p: Tensor, positive: Tensor, negative: Tensor, *, exact: int = 8) -> tuple[Tensor, ...]:
    """log E[t^R] of the row's positives other than the observed one at the quadrature's nodes, and what made it."""
    t, w = _quadrature(p.dtype)
    others = p.masked_fill(negative | positive, 0.0)
    top, at = others.topk(min(exact, p.shape[1]), dim=1)
    terms = torch.log1p(top[..., None] * (t - 1))  # n×exact×T
    rest = (others.sum(1, keepdim=True) - top.sum(1, keepdim=True)).clamp(min=0)
    return terms.sum(1) + rest * (t - 1), w, t, others, top, at, terms


def at_least_one(p: Tensor) -> tuple[Tensor, Tensor]:
    """p / (1 − Π(1−p_j)), and that divisor N×1."""
    some = -torch.expm1(torch.log1p(-p).sum(1, keepdim=True))
    return (p / some.clamp(min=1e-30)).clamp(max=1.0), some
