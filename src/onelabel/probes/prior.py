"""How many positives a row has, told from single positives and a classifier's scores alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelabel.labels import Labels


@dataclass(frozen=True)
class PriorEstimate:
    """Class priors P(y=1) and their sum k, with how the iteration ended."""

    priors: NDArray[np.float64]
    k: float
    iterations: int
    converged: bool

    def __str__(self) -> str:
        return f"k ≈ {self.k:.2f} from scores by EM over {len(self.priors)} class priors ({self.iterations} iterations)"


def estimate_priors(
    probabilities: Any, observed: Labels, *, iterations: int = 500, tolerance: float = 1e-4, rows: int = 4000
) -> PriorEstimate:
    """Class priors by EM, from held-out rows that each have one observed positive.

    `probabilities` s are P(label l is the one observed | x): what an assume-negative (`an`) probe learns, on rows it
    was not trained on. The observed label o is one draw from the row's positives Y; the y are independent given x with
    p_l = P(y_l=1 | x) = σ(a·logit s_l + b_l).

        E:  q_o = 1;  q_l ∝ p_l·E[1/(2+R)] against (1−p_l)·E[1/(1+R)],  R the row's other positives besides o and l
        M:  (a, b) by logistic regression of q on logit s;  π_l = mean over rows of q_l

    for a row with one more positive names o less often; E[1/(1+R)] = ∫₀¹ Π(1−p_j+p_j·t) dt, exact by quadrature. At the
    fixed point s = p·P(o=l | y_l=1), the propensity that the draw implies.

    What one label per row cannot tell is whether a classifier in doubt between two classes sees either or both. Doubt
    is read as both, so k comes out too high on weak features (VOC: 1.5–1.7 for 1.46; see docs/probes.md). Where the
    number matters, audit five rows and use `labels.estimate_k`.
    """
    s = torch.as_tensor(np.asarray(probabilities), dtype=torch.float64)
    z = observed.rows(slice(None))
    if tuple(s.shape) != observed.shape:
        raise ValueError(f"probabilities have shape {tuple(s.shape)}; expected {observed.shape}, as the labels")
    if bool(((s < 0) | (s > 1)).any()):
        raise ValueError("probabilities must lie in [0, 1]: apply sigmoid to logits first")
    named = torch.nonzero((z > 0).any(1)).flatten()
    if not len(named):
        raise ValueError(f"observed must hold at least one positive, got {observed!r}")
    named = named[torch.randperm(len(named), generator=torch.Generator().manual_seed(0))[:rows]]
    s, z = s[named], z[named]
    positive, negative = z > 0, z < 0
    g = torch.logit(s.clamp(1e-7, 1 - 1e-7))
    nodes, weights = np.polynomial.legendre.leggauss(8)
    t, w = torch.tensor((nodes + 1) / 2), torch.tensor(weights / 2)
    slope, shift = torch.ones((), dtype=torch.float64), torch.zeros(s.shape[1], dtype=torch.float64)
    prior, step, done = positive.double().mean(0), 0, False
    while step < iterations and not done:
        step += 1
        q = _posterior(torch.sigmoid(slope * g + shift).clamp(1e-12, 1 - 1e-9), positive, negative, t, w)
        slope, shift = _regress(g, q, slope, shift)
        done = bool((q.mean(0) - prior).abs().sum() < tolerance)
        prior = q.mean(0)
    values = prior.numpy()
    return PriorEstimate(values, float(values.sum()), step, done)


def _regress(g: Tensor, q: Tensor, slope: Tensor, shift: Tensor, steps: int = 3) -> tuple[Tensor, Tensor]:
    """Newton steps of the logistic regression of q on g: one slope for all classes, a shift for each."""
    for _ in range(steps):
        p = torch.sigmoid(slope * g + shift)
        shift = (shift + (q - p).sum(0) / (p * (1 - p)).sum(0).clamp(min=1e-6)).clamp(-20, 20)
        p = torch.sigmoid(slope * g + shift)
        h = p * (1 - p)
        centred = g - (h * g).sum(0) / h.sum(0).clamp(min=1e-9)
        slope = (slope + ((q - p) * centred).sum() / (h * centred**2).sum().clamp(min=1e-6)).clamp(0.1, 10)
    return slope, shift


def _posterior(p: Tensor, positive: Tensor, negative: Tensor, t: Tensor, w: Tensor) -> Tensor:
    """P(y=1 | x, the observed label) of every entry."""
    p = p.masked_fill(negative, 0.0)
    log_terms = torch.log1p(p[..., None] * (t - 1))  # N×L×T: log(1−p+p·t)
    log_terms = log_terms.masked_fill(positive[..., None], 0.0)
    others = (log_terms.sum(1, keepdim=True) - log_terms).exp()
    without, with_it = (others * w).sum(-1), (others * (w * t)).sum(-1)
    q = p * with_it / (p * with_it + (1 - p) * without)
    return torch.where(positive, 1.0, q)
