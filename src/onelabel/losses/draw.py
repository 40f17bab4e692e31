"""The one observed label as a draw from the labels present: its likelihood, and the method that maximises it."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from onelabel.contract import Batch, Hyper, Method, register
from onelabel.losses.curves import entropy

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
#: Nodes t of ∫₀¹ dt and the logarithms of their weights: exact up to 15 other labels, and to 1e-6 beyond.
NODES = tuple((float(t) + 1) / 2 for t in _NODES)
LOG_WEIGHTS = tuple(math.log(float(w) / 2) for w in _WEIGHTS)


def draw_log_likelihood(logits: Tensor, observed: Tensor) -> Tensor:
    """log P(observed | x) of every row, …×B, where y_l ~ Bernoulli(σ(logit_l)) are independent given x.

    A row with one positive o had it drawn evenly from its R+1 positives:

        P(o | x) = p_o·E[1/(1+R)],   E[1/(1+R)] = ∫₀¹ Π_{l unknown} (1 − p_l + p_l·t) dt.

    Several positives, or none, say that they are present and nothing of a draw. Known negatives are absent.
    Its derivative by a logit is P(y_l=1 | x, observed) − p_l, so autograd gives the posterior too: :func:`posterior`.
    """
    positive, negative = observed > 0, observed < 0
    unknown = ~(positive | negative)
    zero = torch.zeros((), dtype=logits.dtype, device=logits.device)
    known = torch.where(positive, logsigmoid(logits), torch.where(negative, logsigmoid(-logits), zero)).sum(-1)
    absent = softplus(logits)
    terms = [
        torch.where(unknown, softplus(logits + math.log(t)) - absent, zero).sum(-1) + w
        for t, w in zip(NODES, LOG_WEIGHTS, strict=True)
    ]
    drawn = torch.logsumexp(torch.stack(terms, -1), -1)
    return known + torch.where(positive.sum(-1) == 1, drawn, zero)


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
    #: Fine-tuning trains a student of this method's calibrated probabilities, unless told otherwise.
    student = True

    def __init__(self, *, alpha: Any = 0.2, stack: int | None = None) -> None:
        super().__init__(alpha=alpha, stack=stack)

    def compute(self, batch: Batch) -> Tensor:
        logits, observed = batch.logits, batch.observed
        unknown = entropy(logits).masked_fill(observed != 0, 0.0)
        return -(draw_log_likelihood(logits, observed) / logits.shape[-1]).mean(-1) - self.reduce(self.alpha * unknown)
