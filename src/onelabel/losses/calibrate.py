"""From scores of any scale to probabilities, by one observed label per row or by clean ones: docs/recovery.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelabel.losses.draw import log_any, posterior
from onelabel.losses.level import level_step
from onelabel.losses.level import log_likelihood as row_log_likelihood
from onelabel.losses.sample import EXACT, LIMIT, Sample, basis

#: Where f may bend: quantiles of the scores of observed labels.
KNOTS = (0.1, 0.3, 0.6)


@dataclass(frozen=True)
class Calibration:
    """P(y_l=1 | x) before anything is known of the row: σ(f(score) + intercept_l), independent given x.

    f is rising and piecewise linear, slope₀·s + Σ_j slope_j·max(s − knot_j, 0), the same for all classes. Every row
    has at least one positive, so that P(y_l=1 | x, not all absent) = p_l / (1 − Π(1−p_j)).

    Attributes:
        slope, knots, intercept: J+1, J and L numbers.
        k: mean positives per row that it implies. iterations, converged: of the EM.
        given_k: whether k was an input.
    """

    slope: NDArray[np.float64]
    knots: NDArray[np.float64]
    intercept: NDArray[np.float64]
    k: float
    iterations: int = 0
    converged: bool = True
    given_k: bool = False

    def logits(self, scores: Any) -> Tensor:
        """f(score) + intercept, N×L in the scores' precision and on their device."""
        s = torch.as_tensor(scores).clamp(-LIMIT, LIMIT)
        z = s * float(self.slope[0]) + torch.as_tensor(self.intercept).to(s)
        for slope, knot in zip(self.slope[1:], self.knots, strict=True):
            z = z + float(slope) * (s - float(knot)).clamp(min=0)
        return z

    def raw(self, scores: Any) -> Tensor:
        """σ(f(score) + intercept), N×L."""
        z = self.logits(scores)
        edge = 1e-9 if z.dtype == torch.float64 else 1e-7
        return torch.sigmoid(z).clamp(edge, 1 - edge)

    def marginal(self, scores: Any) -> Tensor:
        """P(y_l=1 | x, at least one positive): what is said of an observed entry as if it had not been observed."""
        some = log_any(self.logits(scores))[:, None].exp()
        return (self.raw(scores) / some.clamp(min=1e-30)).clamp(max=1.0)

    def posterior(self, scores: Any, observed: Any) -> Tensor:
        """P(y_l=1 | x, the observed labels of the row), N×L; observed entries get :meth:`marginal`.

        A row whose positive o was named by a uniform draw from its positives has fewer others than x alone suggests:
        `losses.draw` has the formula. Rows without a positive get the marginal.
        """
        z = torch.as_tensor(observed)
        q = posterior(self.logits(scores), z, exact=EXACT)
        use = (z == 0) & (z > 0).any(1, keepdim=True)
        return torch.where(use, q, self.marginal(scores)).clamp(0, 1)


def fit_calibration(
    sample: Sample,
    *,
    k: float | None = None,
    knots: Sequence[float] = KNOTS,
    keep: Tensor | None = None,
    start: Calibration | None = None,
    doubt: str = "either",
    iterations: int = 200,
    tolerance: float = 2e-3,
) -> Calibration:
    """EM for f and the intercepts: the likelihood of the observed label o as one uniform draw from the positives,

        P(o | x) ∝ p_o·E[1/(1+R)],  R the number of the row's other positives.

    E: every unknown entry's probability given o. M: a logistic regression of them on the scores, one f, one intercept
    a class with a weak pull to their mean. As the data has only rows with a positive, each stands for 1/(1−P₀) rows
    of which P₀ = Π(1−p_j) would have been left out (``doubt="either"``). With ``doubt="both"`` that is left away, and
    a classifier in doubt between two classes is read as seeing both: the other end of what one label per row cannot
    tell. Of rows of which every label is known (`known_sample`) it is the right one, and this a logistic regression.

    Args:
        k: mean positives per row, where it is known: the intercepts move together so that it holds.
        knots: quantiles of the observed labels' scores at which f may bend; none leaves a line.
        keep: a mask over the sample's rows, for the jackknife.
        start: where to begin.
    """
    s, classes = sample.scores, sample.scores.shape[1]
    if k is not None and not 1 < k <= classes:
        raise ValueError(f"k must lie in (1, {classes}]: every row used has an observed positive, got {k:g}")
    share = (sample.observed > 0).double().mean(0).clamp(min=0.5 / max(len(s), 1), max=0.999)
    scale = max(float(s.std()) if s.numel() > 1 else 0.0, 1e-6)
    if start is None:
        bends = torch.quantile(s[sample.observed > 0], torch.tensor(knots, dtype=s.dtype)) if knots else s.new_zeros(0)
        a = torch.tensor([2.0 / scale] + [0.0] * len(bends), dtype=torch.float64)
        b = torch.logit(share) - 1.0 - a[0] * float(s.mean())
    else:
        bends, a, b = (torch.tensor(value) for value in (start.knots, start.slope, start.intercept))
    step, done, total = 0, False, 0.0
    while step < iterations and not done:
        step += 1
        sums = _expect(sample, a, b, bends, keep, doubt)
        new_a, new_b = _maximise(a, b, sums, scale)
        if k is not None:
            new_b = _hold_k(sample, new_a, new_b, bends, keep, k)
        elif step % 4 == 1:  # EM moves all intercepts together very slowly, and not at all where the data is silent
            new_b = new_b + level_step(sample, new_a, new_b, bends, keep, doubt)
        done = step % 4 != 2 and bool(torch.cat([(new_a - a) * scale, new_b - b]).abs().max() < tolerance)
        a, b, total = new_a, new_b, sums.total / sums.rows
    given = k is not None
    return Calibration(a.numpy(), bends.numpy(), b.numpy(), total if k is None else float(k), step, done, given)


def log_likelihood(line: Calibration, sample: Sample, *, doubt: str = "either") -> float:
    """What `fit_calibration` maximises, without its priors: the mean of log P(observed | x) over the sample's rows."""
    total = 0.0
    for part in sample.blocks():
        logits = line.logits(sample.scores[part])
        total += float(row_log_likelihood(logits, sample.observed[part], doubt=doubt).sum())
    return total / max(len(sample.scores), 1)


@dataclass
class _Sums:
    """Gradient and curvature over the shared coefficients (a, J+1) and the intercepts (b, L)."""

    gradient_a: Tensor
    gradient_b: Tensor
    aa: Tensor
    ab: Tensor
    bb: Tensor
    total: float = 0.0
    rows: float = 0.0


def _expect(sample: Sample, a: Tensor, b: Tensor, knots: Tensor, keep: Tensor | None, doubt: str) -> _Sums:
    """The M step's gradient and curvature at (a, b), with the E step's targets."""
    shared, classes = len(a), len(b)

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.float64)

    sums = _Sums(zeros(shared), zeros(classes), zeros(shared, shared), zeros(shared, classes), zeros(classes))
    for part in sample.blocks():
        x, z = basis(sample.scores[part], knots), sample.observed[part]
        logits = torch.einsum("j,jnl->nl", a, x) + b
        p, q = torch.sigmoid(logits), posterior(logits, z, exact=EXACT)
        mask = torch.ones(len(z), 1, dtype=torch.float64) if keep is None else keep[part].double()[:, None]
        some = log_any(logits)[:, None].exp().clamp(min=1e-3) if doubt == "either" else torch.ones_like(mask)
        residual, curve = mask * (q - p / some), mask * (p * (1 - p) / some)
        sums.gradient_a += (x * residual).sum((1, 2))
        sums.gradient_b += residual.sum(0)
        sums.aa += torch.einsum("inl,jnl->ij", x * curve, x)
        sums.ab += (x * curve).sum(1)
        sums.bb += curve.sum(0)
        sums.total += float((mask * q).sum())
        sums.rows += float(mask.sum())
    return sums


def _maximise(a: Tensor, b: Tensor, s: _Sums, scale: float) -> tuple[Tensor, Tensor]:
    """One Newton step.

    Weak priors, in units of the scores' deviation: the first slope about 1 ± 4 in logits, hinges about 0 ± 2, an
    intercept about their mean ± 2: they keep rare classes finite and decide where the data does not.
    """
    centre, pull_b = torch.zeros_like(a), 1 / 4
    pull_a = torch.full_like(a, (scale / 2) ** 2)
    centre[0], pull_a[0] = 1.0, (scale / 4) ** 2
    gradient_a = s.gradient_a - pull_a * (a - centre)
    gradient_b = s.gradient_b - pull_b * (b - b.mean())
    bb = s.bb + pull_b
    schur = s.aa + torch.diag(pull_a) - (s.ab / bb) @ s.ab.T
    step_a = torch.linalg.solve(schur, gradient_a - s.ab @ (gradient_b / bb))
    step_a = (step_a * scale).clamp(-2, 2) / scale
    step_b = ((gradient_b - s.ab.T @ step_a) / bb).clamp(-2, 2)
    # f must rise: every partial sum of the slopes stays positive
    rising = (a + step_a).cumsum(0).clamp(min=1e-3)
    new_a = torch.cat([rising[:1], rising.diff()])
    return new_a, (b + step_b).clamp(-200, 200)


def _hold_k(sample: Sample, a: Tensor, b: Tensor, knots: Tensor, keep: Tensor | None, k: float) -> Tensor:
    """Intercepts moved together by what brings the expected positives per row nearer to k: a damped secant step."""
    eps = 0.05
    here, moved = (_expect(sample, a, b + shift, knots, keep, "both") for shift in (0.0, eps))
    now = here.total / here.rows
    rate = (moved.total / moved.rows - now) / eps
    return b + float(np.clip((k - now) / max(rate, 1e-3), -1.5, 1.5))
