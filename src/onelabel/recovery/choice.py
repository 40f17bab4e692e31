"""Choosing a method for recovery where no label is clean: not by how well it mimics the draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from onelabel.labels import Labels
from onelabel.losses.calibrate import Calibration, fit_calibration, log_likelihood
from onelabel.losses.sample import Sample, draw_sample
from onelabel.recovery.folds import CrossFit
from onelabel.recovery.thresholds import Histogram, choose_thresholds


def expected_f1(calibration: Calibration, sample: Sample) -> tuple[float, NDArray[np.float64]]:
    """F1 of the labels that the automatic thresholds would add, as calibrated probabilities expect it; and those.

    2·Σ_{q≥t} q / (#{q≥t} + Σq), thresholds per class, sums over all classes: a method whose scores separate the unknown
    positives has probabilities near 0 and 1 and expects much, one that mimics the draw has not.
    """
    histogram = Histogram(sample.scores.shape[1])
    for part in sample.blocks():
        z = sample.observed[part]
        q = calibration.posterior(sample.scores[part], z)
        histogram.add(q.numpy(), torch.eq(z, 0).numpy())
    found = choose_thresholds(histogram, floor=0.05)
    below = float(found.called.sum() + histogram.sum.sum())
    return 2 * float(found.expected_hits.sum()) / max(below, 1e-12), found.value


def best_for_recovery(
    fits: Sequence[CrossFit], labels: Labels, *, k: float | None = None, entries: int = 500_000, seed: int = 0
) -> CrossFit:
    """The fit with the highest `log_likelihood`, with the reason; on as many rows as `entries` scores allow.

    `expected_f1` loses more where features are weak: docs/recovery.md has both.
    """
    values = []
    for fit in fits:
        sample = draw_sample(fit, labels, entries=entries, seed=seed)
        values.append(log_likelihood(fit_calibration(sample, k=k), sample))
    best = int(np.argmax(values))
    told = ", ".join(
        f"{fit.spec.method} {v:.3f}" for i, (fit, v) in enumerate(zip(fits, values, strict=True)) if i != best
    )
    reason = f"{fits[best].spec.method} makes the observed labels likeliest as draws ({values[best]:.3f} a row; {told})"
    return replace(fits[best], reason=reason)
