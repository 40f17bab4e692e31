"""What is known of the audited rows, and of all rows, from the file of recovered labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onelabel.recovery.design import Design
from onelabel.recovery.table import RecoveredFile

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Known:
    """The audited rows' probabilities and states, n×L, and totals over all rows, L."""

    x: Floats
    kept: Floats
    added: Floats
    seen: Floats
    sum_all: Floats
    sum_kept: Floats
    sum_added: Floats
    sum_seen: Floats
    count_kept: Floats
    count_added: Floats


def read_audited(file: RecoveredFile, rows: NDArray[np.int64]) -> Known:
    classes, limits = len(file.class_names), file.thresholds
    x, kept, added, seen = (np.zeros((len(rows), classes)) for _ in range(4))
    sums = np.zeros((6, classes))
    order = np.argsort(rows)
    for c in file.batches():
        at, observed = c["class_index"], c["observed"]
        p = np.where(observed > 0, 1.0, np.where(observed < 0, 0.0, c["probability"].astype(np.float64)))
        plus = (observed == 0) & (c["probability"] >= limits[at])
        given = observed > 0
        both = plus | given
        for i, value in enumerate((p, p * both, p * plus, p * given, both, plus)):
            sums[i] += np.bincount(at, value, classes)
        near = np.minimum(np.searchsorted(rows[order], c["row"]), len(rows) - 1)
        mine = rows[order][near] == c["row"]
        place, col = order[near[mine]], at[mine]
        x[place, col], kept[place, col] = p[mine], both[mine]
        added[place, col], seen[place, col] = plus[mine], given[mine]
    return Known(x, kept, added, seen, *sums)


def filled_in(answers: NDArray[np.int8], x: Floats, design: Design) -> Floats:
    """1, 0; an unanswered entry is x plus the mean residual of its class and stratum."""
    y = (answers > 0).astype(np.float64)
    open_ = answers == 0
    if open_.any():
        residual = np.where(open_, 0.0, y - x)
        for h in range(len(design.size)):
            mine = design.stratum == h
            count = (~open_[mine]).sum(0)
            mean = residual[mine].sum(0) / np.maximum(count, 1)
            y[mine] = np.where(open_[mine], x[mine] + mean, y[mine])
    return y


def entry_weights(answered: NDArray[np.bool_], design: Design) -> Floats:
    """n×L: how many rows of its stratum an answered entry stands for; all classes' weights add up to the rows."""
    there = np.stack([np.bincount(design.stratum, a, len(design.size)) for a in answered.T.astype(np.float64)], 1)
    weight = np.where(answered, (design.size[:, None] / np.maximum(there, 1))[design.stratum], 0.0)
    out: Floats = weight * (design.size.sum() / np.maximum(weight.sum(0), 1e-12))
    return out
