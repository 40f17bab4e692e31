"""From scores of any scale to probabilities, by one observed label per row or by clean ones: docs/recovery.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelabel.losses.draw import log_any, posterior
from onelabel.losses.level import PRIOR_K, level_step, objective
from onelabel.losses.level import log_likelihood as row_log_likelihood
from onelabel.losses.sample import EXACT, LIMIT, Sample, basis, bent

#: Where f may bend: quantiles of the scores of observed labels.
KNOTS = (0.1, 0.3, 0.6)
#: EM has arrived where a step moves no logit by more, at a deviation of the scores.
TOLERANCE = 2e-3
#: By how many nats a fit at the prior's level has to be likelier than where EM arrived: less is a matter of taste, and
#: there the likelihood decides. Where EM was still on its way, any gain will do.
ADRIFT = 1.0
#: How far, as a deviation of its logarithm, a class's slope may be from that of all where models are compared: mAP
#: looks at each class for itself, and a model must not lose by scores that are small in some (docs/probes.md).
OWN = 1.0


@dataclass(frozen=True)
class Calibration:
    """P(y_l=1 | x) before anything is known of the row: σ(f(score) + intercept_l), independent given x.

    f is rising and piecewise linear, slope₀·s + Σ_j slope_j·max(s − knot_j, 0), the same for all classes. Every row
    has at least one positive, so that P(y_l=1 | x, not all absent) = p_l / (1 − Π(1−p_j)).

    Attributes:
        slope, knots, intercept: J+1, J and L numbers.
        k: mean positives per row that it implies. iterations, converged: of the EM.
        given_k: whether k was an input.
        some: whether what is said of new rows (:meth:`said`) supposes that they hold one of the classes at least.
    """

    slope: NDArray[np.float64]
    knots: NDArray[np.float64]
    intercept: NDArray[np.float64]
    k: float
    iterations: int = 0
    converged: bool = True
    given_k: bool = False
    some: bool = False

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

    def said(self, scores: Any) -> Tensor:
        """What is said of a new row, N×L: :meth:`marginal` or :meth:`raw`, by `some`."""
        return self.marginal(scores) if self.some else self.raw(scores)

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
    how: dict[str, Any] = {"knots": knots, "keep": keep, "doubt": doubt, "iterations": iterations}
    fit = _made(_climb(sample, k=k, start=start, **how), k)
    if k is not None or start is not None or doubt == "both" or sample.scores.shape[-1] < 2:
        return fit
    # Where scores say little the likelihood is a ridge of many levels, on which EM may end anywhere; the prior's own
    # level is then the likelier one.
    quiet = replace(fit_level(sample, PRIOR_K, fit, keep=keep), given_k=False)
    if log_posterior(quiet, sample, keep=keep) <= log_posterior(fit, sample, keep=keep) + ADRIFT * fit.converged:
        return fit
    again = _made(_climb(sample, start=quiet, **how), None)
    return max(quiet, again, key=lambda each: log_posterior(each, sample, keep=keep))


def fit_level(
    sample: Sample, k: float, near: Calibration, *, keep: Tensor | None = None, iterations: int = 40
) -> Calibration:
    """The likeliest of three fits at a mean of k positives a row: from `near` on, a straight f, and from that on.

    One may end where f is steep at a bend and nothing else, for far from the likeliest level f is ill determined.
    """
    how: dict[str, Any] = {"k": k, "keep": keep, "iterations": iterations}
    straight = fit_calibration(sample, knots=(), **how)
    unbent = np.append(straight.slope, np.zeros(len(near.knots)))
    starts = near, replace(straight, slope=unbent, knots=near.knots)
    fits = [*(fit_calibration(sample, start=start, **how) for start in starts), starts[1]]
    return max(fits, key=lambda each: log_posterior(each, sample, keep=keep))


def _made(fit: _Fit, k: float | None) -> Calibration:
    a, knots, b = (value[0].numpy() for value in (fit.a, fit.knots, fit.b))
    implied = float(fit.k) if k is None else float(k)
    return Calibration(a, knots, b, implied, int(fit.iterations), bool(fit.converged), k is not None)


def log_posterior(line: Calibration, sample: Sample, *, keep: Tensor | None = None) -> float:
    """log P(observed) of all rows and the level's prior: by what fits of different levels are compared."""
    a, b, knots = (torch.as_tensor(value) for value in (line.slope, line.intercept, line.knots))
    return float(objective(sample, a, b, knots, keep, "either")[0])


def log_likelihood(line: Calibration, sample: Sample, *, doubt: str = "either") -> float:
    """What `fit_calibration` maximises, without its priors: the mean of log P(observed | x) over the sample's rows."""
    a, b, knots = (torch.as_tensor(value) for value in (line.slope, line.intercept, line.knots))
    return float(_mean_likelihood(sample, a, b, knots, doubt))


@torch.no_grad()
def fitted_log_likelihood(sample: Sample, *, doubt: str = "either", own: float = OWN, iterations: int = 200) -> Tensor:
    """`log_likelihood` of a line fitted to the sample, for every model of a stack its own, all at once.

    Args:
        own: how far a class's slope may be from that of all, as a deviation of its logarithm; 0 is not at all.
    """
    fit = _climb(sample, knots=(), doubt=doubt, own=own, iterations=iterations)
    stack = sample.scores.shape[:-2]
    a, b, knots, scale = (value.reshape(*stack, value.shape[-1]) for value in (fit.a, fit.b, fit.knots, fit.scale))
    scaled = Sample(sample.scores * scale[..., None, :], sample.observed)
    return _mean_likelihood(scaled, a, b, knots, doubt)


@dataclass
class _Fit:
    """Of M models: f's coefficients (M×J+1), intercepts (M×L), knots (M×J), what a class's scores are multiplied by
    before f (M×L), and of the rest one each."""

    a: Tensor
    b: Tensor
    knots: Tensor
    scale: Tensor
    k: Tensor
    iterations: Tensor
    converged: Tensor


def _climb(
    sample: Sample,
    *,
    k: float | None = None,
    knots: Sequence[float] = KNOTS,
    keep: Tensor | None = None,
    start: Calibration | None = None,
    doubt: str = "either",
    own: float = 0.0,
    iterations: int = 200,
) -> _Fit:
    """`fit_calibration`'s EM of every model of a stack, each until it has arrived: company changes nothing."""
    (rows, classes), named = sample.observed.shape, sample.observed > 0
    s = sample.scores.reshape(-1, rows, classes)
    if k is not None and not 1 < k <= classes:
        raise ValueError(f"k must lie in (1, {classes}]: every row used has an observed positive, got {k:g}")
    spread = s.flatten(1).std(1, keepdim=True) if rows * classes > 1 else s.new_zeros(len(s), 1)
    unit = spread.clamp(min=1e-6)
    if start is None:
        bends = torch.quantile(s[:, named], s.new_tensor(knots), dim=1).T if knots else s.new_zeros(len(s), 0)
        a = torch.cat([2.0 / unit, torch.zeros_like(bends)], 1)
        share = named.double().mean(0).clamp(min=0.5 / max(rows, 1), max=0.999)
        b = torch.logit(share) - 1.0 - a[:, :1] * s.flatten(1).mean(1, keepdim=True)
    else:
        bends, a, b = (torch.tensor(value)[None] for value in (start.knots, start.slope, start.intercept))
    rest = (s.new_zeros(len(s), dtype=kind) for kind in (s.dtype, torch.int64, torch.bool))
    fit = _Fit(a, b, bends, torch.ones_like(b), *rest)
    for step in range(1, iterations + 1):
        live = torch.nonzero(~fit.converged)[:, 0]
        if not len(live):
            break
        part = Sample(s[live] * fit.scale[live][:, None], sample.observed)
        old_a, old_b, bends, deviation = (value[live] for value in (fit.a, fit.b, fit.knots, unit))
        sums = _expect(part, old_a, old_b, bends, keep, doubt)
        a, b = _maximise(old_a, old_b, sums, deviation)
        if k is not None:
            b = _hold_k(part, a, b, bends, keep, k)
        elif step % 4 == 1:  # EM moves all intercepts together very slowly, and not at all where the data is silent
            b = b + level_step(part, a, b, bends, keep, doubt)[:, None]
        moved = torch.cat([(a - old_a) * deviation, b - old_b], 1).abs().amax(1)
        if own:
            turn, shift = _own_slopes(a, sums, fit.scale[live], own)
            fit.scale[live] *= turn
            b, moved = b + shift, moved.maximum(turn.log().abs().amax(1))
        fit.a[live], fit.b[live], fit.k[live], fit.iterations[live] = a, b, sums.total / sums.rows, step
        fit.converged[live] = (moved < TOLERANCE) & (step % 4 != 2)
    return fit


def _mean_likelihood(sample: Sample, a: Tensor, b: Tensor, knots: Tensor, doubt: str) -> Tensor:
    total = b.new_zeros(b.shape[:-1])
    for part in sample.blocks():
        logits = bent(basis(sample.scores[..., part, :], knots), a, b)
        total = total + row_log_likelihood(logits, sample.observed[part], doubt=doubt).sum(-1)
    return total / max(len(sample.observed), 1)


@dataclass
class _Sums:
    """Gradient and curvature over the shared coefficients (a, …×J+1) and the intercepts (b, …×L)."""

    gradient_a: Tensor
    gradient_b: Tensor
    aa: Tensor
    ab: Tensor
    bb: Tensor
    gradient_s: Tensor  # of a class's own slope, …×L, and its curvature
    ss: Tensor
    total: Tensor
    rows: Tensor


def _expect(sample: Sample, a: Tensor, b: Tensor, knots: Tensor, keep: Tensor | None, doubt: str) -> _Sums:
    """The M step's gradient and curvature at (a, b), with the E step's targets."""
    stack, shared, classes = a.shape[:-1], a.shape[-1], b.shape[-1]
    each = (classes,)
    shapes = ((shared,), each, (shared, shared), (shared, classes), each, each, each, (), ())
    sums = _Sums(*(b.new_zeros((*stack, *shape)) for shape in shapes))
    for part in sample.blocks():
        x, z = basis(sample.scores[..., part, :], knots), sample.observed[part]
        logits = bent(x, a, b)
        p, q = torch.sigmoid(logits), posterior(logits, z, exact=EXACT)
        mask = b.new_ones(len(z), 1) if keep is None else keep[part].double()[:, None]
        some = log_any(logits)[..., None].exp().clamp(min=1e-3) if doubt == "either" else torch.ones_like(mask)
        residual, curve = mask * (q - p / some), mask * (p * (1 - p) / some)
        pulls = (x * residual).sum(-2)
        sums.gradient_a += pulls.sum(-1).movedim(0, -1)
        sums.gradient_b += residual.sum(-2)
        sums.gradient_s += pulls[0]
        sums.aa += torch.einsum("i...nl,j...nl->...ij", x * curve, x)
        sums.ab += (x * curve).sum(-2).movedim(0, -2)
        sums.bb += curve.sum(-2)
        sums.ss += (x[0] ** 2 * curve).sum(-2)
        sums.total += (mask * q).sum((-2, -1))
        sums.rows += mask.sum()
    return sums


def _maximise(a: Tensor, b: Tensor, s: _Sums, unit: Tensor) -> tuple[Tensor, Tensor]:
    """One Newton step.

    Weak priors, in units of the scores' deviation: the first slope about 1 ± 4 in logits, hinges about 0 ± 2, an
    intercept about their mean ± 2: they keep rare classes finite and decide where the data does not.
    """
    first = torch.arange(a.shape[-1], device=a.device) == 0
    centre, pull_a, pull_b = first.double(), (unit / torch.where(first, 4.0, 2.0)) ** 2, 1 / 4
    gradient_a = s.gradient_a - pull_a * (a - centre)
    gradient_b = s.gradient_b - pull_b * (b - b.mean(-1, keepdim=True))
    bb = s.bb + pull_b
    shares = s.ab / bb[..., None, :]
    schur = s.aa + torch.diag_embed(pull_a) - shares @ s.ab.mT
    step_a = torch.linalg.solve(schur, gradient_a - (shares @ gradient_b[..., None])[..., 0])
    step_a = (step_a * unit).clamp(-2, 2) / unit
    step_b = ((gradient_b - (s.ab.mT @ step_a[..., None])[..., 0]) / bb).clamp(-2, 2)
    # f must rise: every partial sum of the slopes stays positive
    rising = (a + step_a).cumsum(-1).clamp(min=1e-3)
    new_a = torch.cat([rising[..., :1], rising.diff(dim=-1)], -1)
    return new_a, (b + step_b).clamp(-200, 200)


def _own_slopes(a: Tensor, s: _Sums, scale: Tensor, own: float) -> tuple[Tensor, Tensor]:
    """One Newton step of the classes' own slopes: factors of their scores, and what the intercepts move by.

    A class turns about the mean score of its doubtful entries, so that its intercept has nothing to answer for; the
    mean over classes is the shared slope's. Logarithms of the factors are about 0 ± `own`.
    """
    slope, middle = a[..., :1], s.ab[..., 0, :] / s.bb.clamp(min=1e-12)
    gradient = slope * (s.gradient_s - middle * s.gradient_b) - scale.log() / own**2
    curve = slope**2 * (s.ss - middle * s.ab[..., 0, :]).clamp(min=0) + 1 / own**2
    step = gradient / curve
    step = (step - (step * curve).sum(-1, keepdim=True) / curve.sum(-1, keepdim=True)).clamp(-1, 1)
    turn = step.exp()
    return turn, slope * middle * (1 - turn)


def _hold_k(sample: Sample, a: Tensor, b: Tensor, knots: Tensor, keep: Tensor | None, k: float) -> Tensor:
    """Intercepts moved together by what brings the expected positives per row nearer to k: a damped secant step."""
    eps = 0.05
    now, moved = (_expect(sample, a, b + shift, knots, keep, "both") for shift in (0.0, eps))
    rate = (moved.total - now.total) / now.rows / eps
    return b + ((k - now.total / now.rows) / rate.clamp(min=1e-3)).clamp(-1.5, 1.5)[..., None]
