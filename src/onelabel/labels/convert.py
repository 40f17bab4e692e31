"""Label encodings in use elsewhere, which disagree on 0 and −1. Name the one you have: nothing is guessed.

| encoding | present | absent | unknown | functions |
| --- | --- | --- | --- | --- |
| ours | +1 | −1 | 0 | `Labels.from_matrix`, `Labels.to_dense` |
| zero-one | 1 | 0 | 0 | `from_zero_one`, `to_zero_one` |
| minus one unknown | 1 | 0 | −1 | `from_minus_one_unknown`, `to_minus_one_unknown` |
| soft (APL's code) | 1 | – | 0, or −s with a soft target s | `from_soft`, `to_soft` |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from onelabel.labels.build import true_matrix
from onelabel.labels.csr import Ints, as_array, matrix_entries, refuse
from onelabel.labels.matrix import Labels


def from_zero_one(Y: Any, *, zero: Literal["unknown", "negative"], class_names: Sequence[str] | None = None) -> Labels:
    """Labels from {0, 1}: 1 is positive, and `zero` says whether 0 was never checked or is known to be absent."""
    if zero == "negative":
        return Labels.from_true(Y, class_names)
    if zero != "unknown":
        raise ValueError(f"zero must be 'unknown' or 'negative', got {zero!r}")
    present = true_matrix(Y, "Y")
    rows, cols = np.nonzero(present)
    return Labels.from_coo(rows, cols, 1, shape=present.shape, class_names=class_names)


def to_zero_one(labels: Labels) -> NDArray[np.uint8]:
    """The dense N×L matrix in which everything that is not positive is 0: negatives and unknown become one."""
    return (labels.to_dense() > 0).astype(np.uint8)


def from_minus_one_unknown(Y: Any, class_names: Sequence[str] | None = None) -> Labels:
    """Labels from {1, 0, −1}, dense N×L, where 1 is positive, 0 negative and −1 unknown."""
    array = as_array(Y, "Y")
    positive, negative = array == 1, array == 0
    refuse(~(positive | negative | (array == -1)), array, "Y", "1 (positive), 0 (negative) and −1 (unknown)")
    return Labels.from_matrix(positive.astype(np.int8) - negative.astype(np.int8), class_names)


def to_minus_one_unknown(labels: Labels) -> NDArray[np.int8]:
    """The dense N×L matrix with 1 for positive, 0 for negative and −1 for unknown."""
    dense = labels.to_dense()
    return np.where(dense == 0, -1, dense > 0).astype(np.int8)


@dataclass(frozen=True)
class SoftTargets:
    """Soft targets in (0, 1] for some entries of an N×L matrix, in row order."""

    rows: Ints
    cols: Ints
    values: NDArray[Any]
    shape: tuple[int, int]

    def __len__(self) -> int:
        return len(self.values)


def from_soft(Y: Any, class_names: Sequence[str] | None = None) -> tuple[Labels, SoftTargets]:
    """Labels and soft targets from floats as the published code of EM+APL (Zhou et al., 2022) keeps them.

    1 is positive, 0 unknown, and −s, for 0 < s ≤ 1, an entry whose pseudo-label is the soft target s. Nobody
    observed that one, so it is unknown in the labels. Integers are refused: a −1 among them is not a soft target.
    """
    rows, cols, values, shape = matrix_entries(Y, "Y")
    if values.dtype.kind != "f":
        raise TypeError(
            f"Y must be floating point, got {values.dtype}; whole −1s go to from_minus_one_unknown or from_matrix"
        )
    bad = ~((values == 1) | ((values < 0) & (values >= -1)))
    if bad.any():
        i = int(np.argmax(bad))
        raise ValueError(
            f"Y must hold 1 (positive), 0 (unknown) or −s with 0 < s ≤ 1 (soft target s); "
            f"got {values[i]} at row {rows[i]}, column {cols[i]}"
        )
    known = values > 0
    labels = Labels.from_coo(rows[known], cols[known], 1, shape=shape, class_names=class_names)
    return labels, SoftTargets(rows[~known], cols[~known], -values[~known], shape)


def to_soft(labels: Labels, soft: SoftTargets) -> NDArray[Any]:
    """The dense N×L float matrix that :func:`from_soft` reads; it has no way to write an observed negative."""
    if soft.shape != labels.shape:
        raise ValueError(f"soft must have the shape of labels {labels.shape}, got {soft.shape}")
    observed = labels.to_dense()
    refuse(observed < 0, observed, "labels", "no negatives, which this encoding cannot write")
    refuse(~((soft.values > 0) & (soft.values <= 1)), soft.values, "soft.values", "targets in (0, 1]")
    clash = observed[soft.rows, soft.cols] != 0
    if clash.any():
        i = int(np.argmax(clash))
        raise ValueError(f"soft must hold unknown entries only; row {soft.rows[i]}, column {soft.cols[i]} is positive")
    dense = observed.astype(soft.values.dtype)
    dense[soft.rows, soft.cols] = -soft.values
    return dense
