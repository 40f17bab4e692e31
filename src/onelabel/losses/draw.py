"""The one observed label as a draw from the labels present: its likelihood, and the method that maximises it."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from onelabel.contract import Batch, Hyper, Method, register
from onelabel.losses.curves import entropy, nll, unified

Rule = tuple[tuple[float, float], ...]


def _rule(n: int) -> Rule:
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return tuple(((1 - float(t)) / 2, math.log(float(w) / 2)) for t, w in zip(nodes, weights, strict=True))


#: 1−t and the logarithm of the weight of every node t of ∫₀¹ dt. n nodes are exact for 2n classes; 32 of them are for
#: 64, and beyond that to 1e-10 while at most 150 of the classes are expected to be present.
RULES = tuple(_rule(n) for n in range(1, 33))


def draw_log_likelihood(logits: Tensor, observed: Tensor, *, exact: int | None = None) -> Tensor:
    """log P(observed | x) of every row, …×B, where y_l ~ Bernoulli(σ(logit_l)) are independent given x.

    A row with one positive o had it drawn evenly from its R+1 positives:

        P(o | x) = p_o·E[1/(1+R)],   E[1/(1+R)] = ∫₀¹ Π_{l unknown} (1 − p_l + p_l·t) dt.

    Several positives, or none, say that they are present and nothing of a draw. Known negatives are absent.
    Its derivative by a logit is P(y_l=1 | x, observed) − p_l: :func:`posterior`.

    Args:
        exact: of more than 2·exact classes only a row's `exact` likeliest enter one by one, the others by their sum,
            log(1−p+p·t) ≈ −p·(1−t), off by p²/2 at most: for thousands of classes, of which few are likely.
    """
    positive, negative = observed > 0, observed < 0
    known = -unified(observed, positive=nll(logits), unknown=torch.zeros_like(logits), negative=nll(-logits)).sum(-1)
    p = torch.sigmoid(logits).masked_fill(positive | negative, 0.0)
    drawn = torch.logsumexp(_at_nodes(p, exact)[0], -1)
    return known + drawn.masked_fill(positive.sum(-1) != 1, 0.0)


@torch.no_grad()
def posterior(logits: Tensor, observed: Tensor, *, exact: int | None = None) -> Tensor:
    """P(y_l=1 | x, observed) of every entry: 1 and 0 where it is known.

    q_l = p_l·Σ_t W_t·t/(1−p_l+p_l·t), with W the share of each node t in the integral of :func:`draw_log_likelihood`,
    which explains `exact`. Rows without a draw keep p.
    """
    z = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    p = torch.sigmoid(z)
    unknown = p.masked_fill(observed != 0, 0.0)
    terms, rule, top, at = _at_nodes(unknown, exact)
    nodes = torch.softmax(terms, -1) * terms.new_tensor([1 - missed for missed, _ in rule])
    share = torch.zeros_like(top)
    for i, (missed, _) in enumerate(rule):
        share += nodes[..., i, None] / (1 - top * missed)
    q = top * share
    if at is not None:
        rest = unknown * nodes.sum(-1, keepdim=True)
        q = (rest / (rest + 1 - unknown)).scatter(-1, at, q)
    q = torch.where((observed > 0).sum(-1, keepdim=True) == 1, q.clamp(max=1), unknown)
    return torch.where(observed > 0, 1.0, q).to(logits.dtype)


def log_any(logits: Tensor) -> Tensor:
    """log P(a row has any label at all) = log(1 − Π(1−p_l)), …×B."""
    none = -nll(-logits).sum(-1)
    return torch.log(-torch.expm1(none.clamp(max=-torch.finfo(none.dtype).tiny)))


def _at_nodes(p: Tensor, exact: int | None) -> tuple[Tensor, Rule, Tensor, Tensor | None]:
    """log(weight·Π(1−p+p·t)) at every node, …×B×T, by a rule; the entries that entered one by one, and their places."""
    classes, top, at, rest = p.shape[-1], p, None, None
    if exact is not None and classes > 2 * exact:
        top, at = p.topk(exact, -1, sorted=False)
        rest, classes = (p.sum(-1) - top.sum(-1)).clamp(min=0), 2 * exact
    rule = RULES[min((classes + 1) // 2, len(RULES)) - 1]
    terms = [torch.log1p(top * -missed).sum(-1) + weight for missed, weight in rule]  # 1−p+p·t = 1−p·(1−t)
    if rest is not None:
        terms = [term - rest * missed for term, (missed, _) in zip(terms, rule, strict=True)]
    return torch.stack(terms, -1), rule, top, at


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
