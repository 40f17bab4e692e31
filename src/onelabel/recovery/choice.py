"""Choosing a method for recovery where no label is clean: not by how well it mimics the draw."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from onelabel.recovery.calibrate import Calibration
from onelabel.recovery.level import log_likelihood
from onelabel.recovery.naming import Sample
from onelabel.recovery.thresholds import Histogram, choose_thresholds


def naming_likelihood(calibration: Calibration, sample: Sample) -> float:
    """Mean log P(o | x) of held-out rows under the calibrated naming model."""
    total = 0.0
    for part in sample.blocks():
        z = sample.observed[part]
        p = calibration.raw(sample.scores[part])
        total += float(log_likelihood(p, z > 0, z < 0, doubt="either").sum())
    return total / max(len(sample.scores), 1)


def expected_f1(calibration: Calibration, sample: Sample) -> tuple[float, NDArray[np.float64]]:
    """F1 of the labels that the automatic thresholds would add, as calibrated probabilities expect it; and those.

    2·Σ_{q≥t} q / (#{q≥t} + Σq), thresholds per class, sums over all classes: a method whose scores separate the unknown
    positives has probabilities near 0 and 1 and expects much, one that mimics the draw has not, whatever the level.
    """
    histogram = Histogram(sample.scores.shape[1])
    for part in sample.blocks():
        z = sample.observed[part]
        q = calibration.posterior(sample.scores[part], z)
        histogram.add(q.numpy(), torch.eq(z, 0).numpy())
    found = choose_thresholds(histogram, floor=0.05)
    below = float(found.called.sum() + histogram.sum.sum())
    return 2 * float(found.expected_hits.sum()) / max(below, 1e-12), found.value
