"""Rows that a calibration learns from, and how they are gone through."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onelabel.labels import Labels

#: Logits beyond this say the same: probabilities of exactly 0 or 1 come in as ±LIMIT.
LIMIT = 30.0
#: Entries (rows × classes) of the sample that calibration learns from.
SAMPLE_ENTRIES = 2_000_000
#: Entries of a block: small enough for a CPU's cache; a GPU rather has few than small ones.
BLOCK_ENTRIES, BLOCK_ENTRIES_DEVICE = 150_000, 10_000_000
#: Of more than twice so many classes a row's likeliest so many enter the draw's integral one by one (`losses.draw`).
EXACT = 16


@dataclass(frozen=True)
class Sample:
    """Scores of held-out rows with their observed labels: one positive drawn from those present, or nothing unknown."""

    scores: Tensor  #: n×L float64, or M×n×L of a stack of models
    observed: Tensor  #: n×L int8

    def blocks(self) -> Iterator[slice]:
        """Some rows at a time, of all models."""
        rows, classes = self.observed.shape
        room = BLOCK_ENTRIES if self.scores.device.type == "cpu" else BLOCK_ENTRIES_DEVICE
        step = max(1, room // (classes * math.prod(self.scores.shape[:-2])))
        for start in range(0, rows, step):
            yield slice(start, start + step)


def basis(s: Tensor, knots: Tensor) -> Tensor:
    """s (…×n×L) and its hinges at the knots (…×J), J+1 × …×n×L."""
    return torch.stack([s, *((s - knot[..., None, None]).clamp(min=0) for knot in knots.unbind(-1))])


def bent(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Logits f(s) + intercept, …×n×L, by the basis x, f's coefficients a (…×J+1) and the intercepts b (…×L)."""
    return torch.einsum("...j,j...nl->...nl", a, x) + b[..., None, :]


def draw_sample(scores: Any, labels: Labels, *, entries: int = SAMPLE_ENTRIES, seed: int = 0) -> Sample:
    """Rows with one observed positive, as many as `entries` scores allow; at least 200 where there are so many.

    Args:
        scores: N×L, or what gives some of its rows by `rows(index)`.
    """
    named = np.flatnonzero(labels.positives_per_row() == 1)
    if not len(named):
        raise ValueError(
            f"labels hold no row with exactly one observed positive ({labels!r}): give an audit, or scores"
        )
    named = _some(named, labels.num_classes, entries, seed)
    found = scores.rows(named) if hasattr(scores, "rows") else scores[named]
    return Sample(_logits(found), labels.rows(named))


def known_sample(scores: Any, true: Any, *, entries: int = SAMPLE_ENTRIES, seed: int = 0) -> Sample:
    """Rows whose true labels, 0/1, are known."""
    rows = _some(np.arange(len(true)), true.shape[1], entries, seed)
    return Sample(_logits(scores[rows]), (torch.as_tensor(true[rows]).cpu() > 0).to(torch.int8) * 2 - 1)


def _some(rows: np.ndarray, classes: int, entries: int, seed: int) -> np.ndarray:
    most = max(200, entries // classes)
    return rows if len(rows) <= most else np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


def _logits(scores: Any) -> Tensor:
    return torch.as_tensor(scores).cpu().double().clamp(-LIMIT, LIMIT)
