"""Features that are measurements in units of their own, brought to one scale before the head."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

#: Columns whose deviations differ more, of the 95% and 5% quantiles, are not one network's: those of ResNet-50 differ
#: 4- to 10-fold, words 2- to 6-fold, measurements in seconds, hertz and decibels 150-fold (docs/training.md).
UNEVEN = 100.0
#: Rows that the moments are taken of, evenly spaced.
ROWS = 10_000


class Columns(nn.Identity):
    """(x − centre) / scale, a column each: in a backbone's place, and with the weights in every file."""

    centre: Tensor
    scale: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))

    def forward(self, features: Tensor) -> Tensor:
        return (features - self.centre) / self.scale


def columns_of(X: Any) -> Columns | None:
    """What brings N×D features to mean 0 and deviation 1 by column; None where their units are alike as they come."""
    rows = np.linspace(0, len(X) - 1, min(len(X), ROWS)).round().astype(np.int64)
    sample: NDArray[np.float64] = np.asarray(X[rows], np.float64)
    deviation = sample.std(0)
    alive = deviation > 1e-6 * np.abs(sample).max(0, initial=1e-30)
    if alive.sum() < 2:
        return None
    low, high = np.quantile(deviation[alive], [0.05, 0.95])
    if high <= UNEVEN * low:
        return None
    made = Columns(sample.shape[1])
    made.centre.copy_(torch.from_numpy(sample.mean(0)))
    made.scale.copy_(torch.from_numpy(np.where(alive, deviation, 1.0)))
    return made


def even(*parts: NDArray[Any] | None) -> list[NDArray[Any] | None]:
    """Every part's features by the moments of the first; as they are where those are alike."""
    found = columns_of(parts[0])
    if found is None:
        return list(parts)
    return [None if X is None else found(torch.from_numpy(np.ascontiguousarray(X, np.float32))).numpy() for X in parts]
