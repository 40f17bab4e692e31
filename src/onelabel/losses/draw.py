"""The one observed label as a draw from the labels present: its likelihood, and the method that maximises it."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from onelabel.contract import Batch, Hyper, Method, register
from onelabel.losses.curves import entropy, nll, unified


def _rule(n: int) -> tuple[tuple[float, float], ...]:
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return tuple(((1 - float(t)) / 2, math.log(float(w) / 2)) for t, w in zip(nodes, weights, strict=True))


#: 1−t and the logarithm of the weight of every node t of ∫₀¹ dt. n nodes are exact for 2n classes; 32 of them are for
#: 64, and beyond that to 1e-10 while at most 150 of the classes are expected to be present.
RULES = tuple(_rule(n) for n in range(1, 33))


def draw_log_likelihood(logits: Tensor, observed: Tensor) -> Tensor:
    """log P(observed | x) of every row, …×B, where y_l ~ Bernoulli(σ(logit_l)) are independent given x.

    A row with one positive o had it drawn evenly from its R+1 positives:

        P(o | x) = p_o·E[1/(1+R)],   E[1/(1+R)] = ∫₀¹ Π_{l unknown} (1 − p_l + p_l·t) dt.

    Several positives, or none, say that they are present and nothing of a draw. Known negatives are absent.
    Its derivative by a logit is P(y_l=1 | x, observed) − p_l, so autograd gives the posterior too: :func:`posterior`.
    """
    positive, negative = observed > 0, observed < 0
    known = -unified(observed, positive=nll(logits), unknown=torch.zeros_like(logits), negative=nll(-logits)).sum(-1)
    p = torch.sigmoid(logits).masked_fill(positive | negative, 0.0)
    rule = RULES[min((logits.shape[-1] + 1) // 2, len(RULES)) - 1]
    terms = [torch.log1p(p * -missed).sum(-1) + weight for missed, weight in rule]  # 1−p+p·t = 1−p·(1−t)
    drawn = torch.logsumexp(torch.stack(terms, -1), -1)
    return known + drawn.masked_fill(positive.sum(-1) != 1, 0.0)


def posterior(logits: Tensor, observed: Tensor) -> Tensor:
    """P(y_l=1 | x, observed) of every entry: 1 and 0 where it is known."""
    with torch.enable_grad():
        z = logits.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(draw_log_likelihood(z, observed).sum(), z)
    q = (torch.sigmoid(logits.detach()) + gradient).clamp(0, 1)
    return torch.where(observed > 0, torch.ones_like(q), torch.where(observed < 0, torch.zeros_like(q), q))


@register(
    "roll-call",
    title="Roll call: the observed label as a draw from the labels present",
    paper="onelabel, docs/roll-call.md",
    year=2026,
    formula="−(1/L)·log(p_o·E[1/(1+R)]) − (α/L)·Σ_{z=0} H(p); then a student of its calibrated probabilities",
)
class RollCall(Method):
    """Roll call: maximum likelihood of the draw, maximum entropy of what it leaves open.

        −(1/L)·log P(o | x) − (α/L)·Σ_{l: z=0} H(p_l),   P(o | x) = p_o·E[1/(1+R)]

    with R the number of other labels present. EM has −log p_o in its place, as if o had been asked about; a picture
    in which o had rivals says more about the rivals. Fine-tuning follows it with a student (docs/roll-call.md).
    """

    hyper: ClassVar = {"alpha": Hyper("weight of the entropy of unknown entries", 0, 10, (0.1, 0.2, 0.3))}
    student = True

    def __init__(self, *, alpha: Any = 0.2, stack: int | None = None) -> None:
        super().__init__(alpha=alpha, stack=stack)

    def compute(self, batch: Batch) -> Tensor:
        logits, observed = batch.logits, batch.observed
        unknown = entropy(logits).masked_fill(observed != 0, 0.0)
        return -(draw_log_likelihood(logits, observed) / logits.shape[-1]).mean(-1) - self.reduce(self.alpha * unknown)
