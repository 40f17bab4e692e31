"""What the other classes of a row say of each, from rows of which every label is known: docs/roll-call.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from onelabel.system import progress

#: What the squared weights cost in log-likelihood, strongest first; the rows choose.
PENALTIES = (30.0, 10.0, 3.0, 1.0, 0.3, 0.1)
FOLDS = 10
#: Steps of L-BFGS: to compare penalties, each from where the one before ended, and of the last fit.
SHORT, STEPS = 15, 100
#: Rows × classes² that take seconds of two CPU cores.
SLOW = 10_000_000


@dataclass(frozen=True)
class Context:
    """Logits that know of each other: z_l + Σ_{m≠l} v_ml·(σ(z_m) − mean_m) + d_l.

    A table makes a chair likelier, whatever the chair looks like. Annotators who prefer some classes leave out what
    mostly comes beside these; here it is given back.
    """

    weights: Tensor  #: v, L×L, of m and l what m says of l; 0 on the diagonal
    mean: Tensor  #: of the rows learned from, L
    shift: Tensor  #: d, L

    def logits(self, z: Tensor) -> Tensor:
        """Of z, N×L, each class's logit by itself."""
        weights, mean, shift = (value.to(z) for value in (self.weights, self.mean, self.shift))
        return z + (torch.sigmoid(z) - mean) @ weights + shift


def fit_context(
    logits: Tensor,
    true: Tensor,
    *,
    counts: Tensor | None = None,
    penalties: Sequence[float] = PENALTIES,
    seed: int = 0,
    show: bool = False,
) -> Context | None:
    """A logistic regression of each class on the others, pulled to nothing as far as the rows themselves say.

    Maximises Σ r·log P(y | z) − ρ·Σ(v² + (d − c)²), with the ρ that does best on rows left out of it, a tenth at a
    time. c is what moves all logits alike to as many labels as there are. None where no ρ does better there than c by
    itself (of few rows most often), or where there are fewer than two rows a fold, or fewer than classes.

    Args:
        logits: n×L, calibrated; of more than 1,414 classes a `known_sample` has too few rows. true: n×L, 0 or 1.
        counts: r, n×L, how much each entry counts: `annotators.left_open` where what is asked later are labels that
            nobody named.
        penalties: ρ, falling; two after the best end it.
        show: a bar, where it takes seconds.
    """
    z, y = logits.double(), true.to(logits.device).double()
    r = torch.ones_like(z) if counts is None else counts.to(z)
    if len(z) < max(2 * FOLDS, z.shape[1]):
        return None
    fold = torch.from_numpy(np.random.default_rng(seed).permutation(len(z)) % FOLDS).to(z.device)
    folds = [fold == i for i in range(FOLDS)]
    best = sum(float(_cost(z[held] + _level(z[~held], y[~held], r[~held]), y[held], r[held])) for held in folds)
    starts: list[Context | None] = [None] * FOLDS
    chosen, worse = None, 0
    slow = z.numel() * z.shape[1] > SLOW
    with progress("what other classes say", FOLDS * len(penalties), wanted=show and slow) as advance:
        for penalty in penalties:
            cost = 0.0
            for i, held in enumerate(folds):
                starts[i] = told = _fit(z[~held], y[~held], r[~held], penalty, steps=SHORT, start=starts[i])
                cost += float(_cost(told.logits(z[held]), y[held], r[held]))
                advance(1)
            worse += 1
            if cost < best:
                best, chosen, worse = cost, penalty, 0
            if chosen is not None and worse == 2:
                break
    return None if chosen is None else _fit(z, y, r, chosen)


def _cost(z: Tensor, y: Tensor, r: Tensor) -> Tensor:
    return cross_entropy(z, y, r, reduction="sum")


def _level(z: Tensor, y: Tensor, r: Tensor, steps: int = 40) -> float:
    """c, by bisection."""
    low, high, wanted = -30.0, 30.0, float((r * y).sum())
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if float((r * torch.sigmoid(z + middle)).sum()) < wanted else (low, middle)
    return low


def _fit(
    z: Tensor, y: Tensor, r: Tensor, penalty: float, *, steps: int = STEPS, start: Context | None = None
) -> Context:
    p = torch.sigmoid(z)
    mean, level = p.mean(0), _level(z, y, r)
    p, z = p - mean, z + level
    apart = 1 - torch.eye(z.shape[1], dtype=z.dtype, device=z.device)
    weights = torch.zeros_like(apart) if start is None else start.weights.clone()
    own = torch.zeros_like(mean) if start is None else start.shift - level
    weights, own = weights.requires_grad_(), own.requires_grad_()
    search = torch.optim.LBFGS([weights, own], max_iter=steps, history_size=10, line_search_fn="strong_wolfe")

    def cost() -> Tensor:
        search.zero_grad()
        with torch.enable_grad():
            told = z + p @ (weights * apart) + own
            loss = _cost(told, y, r) + penalty * (weights.square().sum() + own.square().sum())
            loss.backward()
        return loss

    search.step(cost)
    return Context((weights * apart).detach(), mean, (own + level).detach())
