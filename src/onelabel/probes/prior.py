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
    probabilities: Any, observed: Labels, *, iterations: int = 200, tolerance: float = 1e-4
) -> PriorEstimate:
    """Class priors by EM, from held-out rows that each have one observed positive.

    `probabilities` s are P(label l is the one observed | x): what an assume-negative (`an`) probe learns, on rows it
    was not trained on. With the observed label o one draw from the row's positives Y, y independent given x and
    p_l = P(y_l=1 | x) = s_l·π_l/α_l (α the observed share of class l, π its prior, cut at 1),

        E:  q_o = 1;  q_l ∝ p_l·E[1/(2+R)] against (1−p_l)·E[1/(1+R)],  R the row's other positives besides o and l
        M:  π_l = mean over rows of q_l

    since a row with one more positive names o less often: E[1/(1+R)] = ∫₀¹ Π(1−p_j+p_j·t) dt, exact by quadrature. The
    fixed point is where s = p·P(o=l | y_l=1), the propensity that the draw implies. What one label per row cannot tell
    is whether a classifier in doubt between two classes sees either or both; doubt is read as both, so k is rather too
    high on weak features. Ask for an audit of five rows (`labels.estimate_k`) where the number matters.
    """
    s = torch.as_tensor(np.asarray(probabilities), dtype=torch.float64)
    z = observed.rows(slice(None))
    if tuple(s.shape) != observed.shape:
        raise ValueError(f"probabilities have shape {tuple(s.shape)}; expected {observed.shape}, as the labels")
    if bool(((s < 0) | (s > 1)).any()):
        raise ValueError("probabilities must lie in [0, 1]: apply sigmoid to logits first")
    named = (z > 0).any(1)
    if not bool(named.any()):
        raise ValueError(f"observed must hold at least one positive, got {observed!r}")
    s, z = s[named], z[named]
    positive, negative = z > 0, z < 0
    share = positive.double().mean(0)
    # The probe's mean need not equal the observed share on rows it has not seen; p is anchored at what it says.
    mean = s.mean(0).clamp(min=1e-12)
    nodes, weights = np.polynomial.legendre.leggauss(8)
    t, w = torch.tensor((nodes + 1) / 2), torch.tensor(weights / 2)
    prior, step, done = share.clone(), 0, False
    while step < iterations and not done:
        step += 1
        q = _posterior((s * (prior / mean)).clamp(1e-12, 1 - 1e-9), positive, negative, t, w)
        new = torch.where(share > 0, q.mean(0), 0.0)
        done = bool((new - prior).abs().max() < tolerance)
        prior = new
    values = prior.clamp(max=1.0).numpy()
    return PriorEstimate(values, float(values.sum()), step, done)


def _posterior(p: Tensor, positive: Tensor, negative: Tensor, t: Tensor, w: Tensor) -> Tensor:
    """P(y=1 | x, the observed label) of every entry."""
    p = p.masked_fill(negative, 0.0)
    log_terms = torch.log1p(p[..., None] * (t - 1))  # N×L×T: log(1−p+p·t)
    log_terms = log_terms.masked_fill(positive[..., None], 0.0)
    others = (log_terms.sum(1, keepdim=True) - log_terms).exp()
    without, with_it = (others * w).sum(-1), (others * (w * t)).sum(-1)
    q = p * with_it / (p * with_it + (1 - p) * without)
    return torch.where(positive, 1.0, q)


def estimate_k_from_scores(probabilities: Any, observed: Labels) -> float:
    """The expected number of positives a row: the sum of :func:`estimate_priors`."""
    return estimate_priors(probabilities, observed).k
