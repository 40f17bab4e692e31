"""How sure the expected counts are: the label draw, what one label per row cannot tell, and the labels themselves."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from onelabel.losses.calibrate import Calibration, fit_calibration, fit_level, log_posterior
from onelabel.losses.level import level_error
from onelabel.losses.sample import Sample
from onelabel.system import Advance

Floats = NDArray[np.float64]
GROUPS = 10
#: Of `measure`, for a bar.
STEPS = GROUPS + 2
#: Levels at which the posterior is asked: missing positives e^0.5 times as many as at the one before, until it falls by
#: so many nats.
RATIO, FALL = math.exp(0.5), 5.0
#: A class's missing positives are believed to be off by this share of them, as one curve serves all classes.
DIFFER = 0.15


@dataclass(frozen=True)
class Uncertainty:
    """Of the expected missing positives per row of the sample, per class and in total (the last entry), length L+1.

    Attributes:
        mean: the expectation itself.
        draw: standard error over which labels happened to be observed: delete-a-group jackknife, and the information
            that the labels hold on the level of all classes together; at least what leaves the whole as wide as the
            level's posterior is upwards, which matters where scores say little.
        doubt: what one label per row cannot tell, not a sampling error: half the gap to reading a classifier's doubt
            between classes as "both"; for a class also the same share of its own missing as of all classes', and
            `DIFFER` of it.
    """

    mean: Floats
    draw: Floats
    doubt: Floats


def missing_per_row(calibration: Calibration, sample: Sample) -> Floats:
    """Expected unknown positives per row: L numbers and their sum."""
    total = torch.zeros(sample.scores.shape[1], dtype=torch.float64)
    for part in sample.blocks():
        z = sample.observed[part]
        q = calibration.posterior(sample.scores[part], z)
        total += torch.where(z == 0, q, 0.0).sum(0)
    each = (total / max(len(sample.scores), 1)).numpy()
    return np.append(each, each.sum())


def measure(
    sample: Sample,
    fitted: Calibration,
    *,
    k: float | None,
    groups: int = GROUPS,
    seed: int = 0,
    advance: Advance = lambda n: None,
) -> Uncertainty:
    """Refit without each of `groups` groups of rows, once with the other reading of doubt, and at other levels.

    `advance` is told of `STEPS` steps.
    """
    mean = missing_per_row(fitted, sample)
    rows = len(sample.scores)
    groups = min(groups, rows)
    draw = np.zeros_like(mean)
    if groups > 1:
        member = torch.from_numpy(np.random.default_rng(seed).permutation(rows) % groups)
        refits = []
        for g in range(groups):
            without = fit_calibration(sample, k=k, keep=member != g, start=fitted, iterations=8)
            refits.append(missing_per_row(without, sample))
            advance(1)
        around = np.stack(refits)
        draw = np.sqrt((groups - 1) / groups * ((around - around.mean(0)) ** 2).sum(0))
    if k is None:
        a, b, knots = (torch.as_tensor(v) for v in (fitted.slope, fitted.intercept, fitted.knots))
        draw = np.hypot(draw, level_error(sample, a, b, knots, "either").numpy())
    other = missing_per_row(fit_calibration(sample, k=k, start=fitted, doubt="both", iterations=30), sample)
    advance(1)
    gap = np.abs(other - mean) / 2
    share = gap[-1] / max(float(mean[-1]), 1e-12)
    doubt = np.append(np.hypot(gap[:-1], math.hypot(share, DIFFER) * mean[:-1]), gap[-1])
    if k is None:
        draw = np.sqrt(np.maximum(draw**2, level_spread(sample, fitted) ** 2 - doubt**2))
    advance(1)
    return Uncertainty(mean, draw, doubt)


def level_spread(sample: Sample, fitted: Calibration) -> Floats:
    """How far missing positives per row, L and their sum, may be above the fit's by the posterior of their level.

    `level_error` asks how sharp the posterior is at the fit, with f as it is. Scores that say little leave a ridge that
    goes on to all labels present, each level with an f of its own, so here f is fitted anew at each. Towards fewer
    labels there is little room, and where scores say something the measured intervals hold without it.
    """
    classes, here = sample.scores.shape[1], missing_per_row(fitted, sample)
    value, missing = [log_posterior(fitted, sample)], [here]
    extra, near = float(here[-1]) * RATIO, fitted
    while 0.01 < extra < 0.98 * (classes - 1) and value[-1] >= max(value) - FALL:
        near = fit_level(sample, 1 + extra, near)
        value.append(log_posterior(near, sample))
        missing.append(missing_per_row(near, sample))
        extra *= RATIO
    weight = np.exp(np.array(value) - max(value))
    spread: Floats = np.sqrt((weight[:, None] * (np.stack(missing) - here) ** 2).sum(0) / weight.sum())
    return spread
