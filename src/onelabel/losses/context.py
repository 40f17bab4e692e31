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
    logits: Tensor, true: Tensor, *, penalties: Sequence[float] = PENALTIES, seed: int = 0, show: bool = False
) -> Context | None:
    """A logistic regression of each class on the others, pulled to nothing as far as the rows themselves say.

    Maximises Σ log P(y | z) − ρ·Σ(v² + d²), with the ρ that does best on rows left out of it, a tenth at a time.
    None where no ρ does better there than the logits as they are (of few rows most often), or where there are fewer
    than two rows a fold, or fewer than classes.

    Args:
        logits: n×L, calibrated; of more than 1,414 classes a `known_sample` has too few rows. true: n×L, 0 or 1.
        penalties: ρ, falling; two after the best end it.
        show: a bar, where it takes seconds.
    """
    z, y = logits.double(), true.to(logits.device).double()
    if len(z) < max(2 * FOLDS, z.shape[1]):
        return None
    fold = torch.from_numpy(np.random.default_rng(seed).permutation(len(z)) % FOLDS).to(z.device)
    best, chosen, worse = float(_cost(z, y)), None, 0
    starts: list[Context | None] = [None] * FOLDS
    slow = z.numel() * z.shape[1] > SLOW
    with progress("what other classes say", FOLDS * len(penalties), wanted=show and slow) as advance:
        for penalty in penalties:
            cost = 0.0
            for i, start in enumerate(starts):
                held = fold == i
                starts[i] = told = _fit(z[~held], y[~held], penalty, steps=SHORT, start=start)
                cost += float(_cost(told.logits(z[held]), y[held]))
                advance(1)
            worse += 1
            if cost < best:
                best, chosen, worse = cost, penalty, 0
            if chosen is not None and worse == 2:
                break
    return None if chosen is None else _fit(z, y, chosen)


def _cost(z: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(z, y, reduction="sum")


def _fit(z: Tensor, y: Tensor, penalty: float, *, steps: int = STEPS, start: Context | None = None) -> Context:
    p = torch.sigmoid(z)
    mean = p.mean(0)
    p = p - mean
    apart = 1 - torch.eye(z.shape[1], dtype=z.dtype, device=z.device)
    weights, shift = (
        (torch.zeros_like(apart), torch.zeros_like(mean)) if start is None else (start.weights, start.shift)
    )
    weights, shift = weights.clone().requires_grad_(), shift.clone().requires_grad_()
    search = torch.optim.LBFGS([weights, shift], max_iter=steps, history_size=10, line_search_fn="strong_wolfe")

    def cost() -> Tensor:
        search.zero_grad()
        with torch.enable_grad():
            told = z + p @ (weights * apart) + shift
            loss = _cost(told, y) + penalty * (weights.square().sum() + shift.square().sum())
            loss.backward()
        return loss

    search.step(cost)
    return Context((weights * apart).detach(), mean, shift.detach())
