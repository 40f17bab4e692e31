"""Which classes annotators name first, and which labels they therefore leave open: docs/roll-call.md."""

from __future__ import annotations

import torch
from torch import Tensor

#: The weights' logarithms are held to 0 as by a normal prior of this deviation: rarely is one class named e² times as
#: readily as another for no reason but its own, and a class that few held-out rows have says little.
DEVIATION = 1.0
#: The prior's deviation of `fit_slope`: which hundred rows are held out moves it by less than a tenth then.
SLOPE = 0.3
STEPS = 100


def fit_preferences(true: Tensor, names: Tensor) -> Tensor:
    """w, L: of a row's labels S one is named, l with probability w_l / Σ_{m∈S} w_m; geometric mean 1.

    Two things tell, and no model is asked: how often each class is named in training, and which labels wholly known
    rows of the same kind have together. Maximises Σ_l n_l·log π_l(w), π_l the mean over rows of l's probability to be
    the named one, with names that count as many as rows, beside the prior.

    Args:
        true: n×L, 0 or 1; rows without a label say nothing. names: how often each class was named, L.
    """
    return _fit(true, names, torch.eye(true.shape[1])).exp()


def fit_slope(true: Tensor, names: Tensor) -> float:
    """γ of w_l = n_l^γ, n_l how often class l is named: what `fit_preferences` asks, of one number."""
    n = names.double().clamp(min=1).log()
    return SLOPE * float(_fit(true, names, SLOPE * (n - n.mean())[:, None]))


def _fit(true: Tensor, names: Tensor, basis: Tensor) -> Tensor:
    """The numbers c of log w = basis·c that are likeliest, each by itself a normal deviate of DEVIATION beforehand."""
    rows = true[true.sum(1) > 0].double()
    n = names.to(rows) * (len(rows) / names.sum().clamp(min=1))
    basis = basis.to(rows)
    found = torch.zeros(basis.shape[1], dtype=rows.dtype, device=rows.device, requires_grad=True)
    search = torch.optim.LBFGS([found], max_iter=STEPS, line_search_fn="strong_wolfe")

    def cost() -> Tensor:
        search.zero_grad()
        with torch.enable_grad():
            share = chances(rows, (basis @ found).exp()).mean(0)
            # a class that no row has cannot be named here; what its names say stays with the prior
            told = (n * share.clamp(min=torch.finfo(share.dtype).tiny).log()).sum()
            loss = (found / DEVIATION).square().sum() / 2 - told
            loss.backward()
        return loss

    search.step(cost)
    return found.detach()


def chances(true: Tensor, weights: Tensor) -> Tensor:
    """How likely each label of a row is to be the named one, n×L; 0 for what is absent."""
    share = true * weights.to(true)
    return share / share.sum(1, keepdim=True).clamp(min=torch.finfo(share.dtype).tiny)


def left_open(true: Tensor, weights: Tensor) -> Tensor:
    """How likely each entry of wholly known rows would be unknown, had one label been named: 1 for what is absent."""
    return 1 - chances(true.to(weights), weights)
