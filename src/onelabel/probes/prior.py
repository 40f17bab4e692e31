"""How many positives a row has, told from single positives and a classifier's scores alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from onelabel.labels import Labels
from onelabel.losses.calibrate import fit_calibration
from onelabel.losses.draw import posterior
from onelabel.losses.sample import draw_sample


@dataclass(frozen=True)
class PriorEstimate:
    """Class priors P(y=1) and their sum k, with how the iteration ended."""

    priors: NDArray[np.float64]
    k: float
    iterations: int
    converged: bool

    def __str__(self) -> str:
        return f"k ≈ {self.k:.2f} from held-out scores by EM over {len(self.priors)} class priors"


def estimate_priors(probabilities: Any, observed: Labels, *, rows: int = 4000) -> PriorEstimate:
    """Class priors by EM, from held-out rows that each have one observed positive.

    `probabilities` s are of any classifier that was not trained on these rows. The observed label o is one draw from
    the row's positives; the y are independent given x with p_l = P(y_l=1 | x) = σ(f(logit s_l) + b_l), f and b_l by
    `losses.calibrate.fit_calibration`, as `recovery.recover` has them; π_l is the mean over rows of P(y_l=1 | x, o).

    What one label per row cannot tell is whether a classifier in doubt between two classes sees either or both. Doubt
    is read as either, and k mostly comes out too low on weak features (docs/probes.md). Where the number matters, audit
    five rows and use `labels.estimate_k`.
    """
    s = torch.as_tensor(np.asarray(probabilities), dtype=torch.float64)
    if tuple(s.shape) != observed.shape:
        raise ValueError(f"probabilities have shape {tuple(s.shape)}; expected {observed.shape}, as the labels")
    if bool(((s < 0) | (s > 1)).any()):
        raise ValueError("probabilities must lie in [0, 1]: apply sigmoid to logits first")
    logits = torch.logit(s.clamp(1e-7, 1 - 1e-7))
    sample = draw_sample(logits, observed, entries=rows * observed.num_classes)
    fitted = fit_calibration(sample)
    values = posterior(fitted.logits(sample.scores), sample.observed).mean(0).numpy()
    return PriorEstimate(values, float(values.sum()), fitted.iterations, fitted.converged)
