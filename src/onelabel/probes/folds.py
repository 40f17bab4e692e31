"""Probes that each leave a part of the rows out, so that every row is scored by one that did not see it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from onelabel.labels import Labels
from onelabel.probes.engine import fit_probes
from onelabel.probes.features import Features
from onelabel.probes.results import ProbeResults
from onelabel.probes.spec import ProbeSpec

#: What is cross-fitted unless somebody says otherwise: to estimate k, and to recover labels.
DEFAULT = ProbeSpec("em", lr=1e-3, batch_size=64, epochs=25)


def assign_folds(labels: Labels, folds: int, *, seed: int = 0) -> NDArray[np.int8]:
    """A fold per row, stratified: the rows of each observed class are dealt out in turn."""
    rows = labels.num_examples
    if not 2 <= folds <= min(rows, 100):
        raise ValueError(f"folds must lie in [2, {min(rows, 100)}], got {folds}")
    kind = np.full(rows, labels.num_classes)
    at, classes = labels.positive_index()
    kind[at[::-1]] = classes[::-1]  # a row with several counts under its first
    rng = np.random.default_rng(seed)
    order = rng.permutation(rows)
    order = order[np.argsort(kind[order], kind="stable")]
    fold = np.empty(rows, np.int8)
    fold[order] = np.arange(rows) % folds
    return rng.permutation(folds).astype(np.int8)[fold]


def fold_probes(
    X: Features,
    labels: Labels,
    fold: NDArray[np.int8],
    specs: Sequence[ProbeSpec],
    *,
    max_rows: int | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: bool = True,
) -> Iterator[ProbeResults]:
    """For each fold in turn, probes trained on the other rows, at most `max_rows` of them."""
    rng = np.random.default_rng(seed)
    for number in range(int(fold.max()) + 1):
        rows = np.flatnonzero(fold != number)
        if max_rows is not None and len(rows) > max_rows:
            rows = np.sort(rng.choice(rows, max_rows, replace=False))
        mine = [replace(spec, batch_size=min(spec.batch_size, len(rows))) for spec in specs]
        yield fit_probes(X[torch.from_numpy(rows)], labels.take(rows), mine, device=device, progress=progress)


def held_out_logits(X: Features, labels: Labels, *, folds: int = 5, **options: Any) -> torch.Tensor:
    """N×L: every row by the `DEFAULT` probe that did not see it; 0 where one diverged."""
    fold = assign_folds(labels, min(folds, labels.num_examples))
    logits = torch.empty(labels.shape)
    for number, fitted in enumerate(fold_probes(X, labels, fold, [DEFAULT], **options)):
        mine = torch.from_numpy(np.flatnonzero(fold == number))
        logits[mine] = fitted.scores(X[mine], 0)
    return logits.nan_to_num(0.0, 0.0, 0.0)
