"""Scores of training rows by models that did not see those rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from onelabel.contract import method_info
from onelabel.labels import Labels
from onelabel.probes import ProbeSpec
from onelabel.probes.features import SparseRows, as_features
from onelabel.probes.folds import DEFAULT, assign_folds, fold_probes
from onelabel.probes.spec import presence

Scores = NDArray[np.float32]
#: Entries of scores (rows × classes) that are held at a time.
CHUNK_ENTRIES = 4_000_000
#: What "auto" tries: methods whose scores are of presence. Those of `an` and its like are of being named.
AUTO = ("an-ls", "em", "gr", "role", "roll-call")
#: A class's scores that deviate so many times as much in one fold as in the middle one are of a probe that ran away.
WILD = 3.0


class Scored(Protocol):
    """Logits of N rows and L classes, read in pieces; row i must not come from a model that trained on row i."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def rows(self, index: NDArray[np.int64]) -> Scores: ...


@dataclass(frozen=True)
class ArrayScores:
    """Held-out logits somebody else made: an array or memory map N×L."""

    array: Any

    def __post_init__(self) -> None:
        if self.array.ndim != 2:
            raise ValueError(f"scores have shape {tuple(self.array.shape)}; expected N×L")

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.array.shape[0]), int(self.array.shape[1])

    def rows(self, index: NDArray[np.int64]) -> Scores:
        return np.asarray(self.array[index], np.float32)


@dataclass(frozen=True)
class CrossFit:
    """K probes, each trained without one fold, and the fold of every row.

    Attributes:
        weight, bias: K×L×D, K×L.
        fold: N, the probe that never saw the row.
        spec: what was trained. reason: why.
    """

    features: Any
    fold: NDArray[np.int8]
    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    spec: ProbeSpec
    reason: str

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.fold), self.bias.shape[1]

    def rows(self, index: NDArray[np.int64]) -> Scores:
        """Logits of some rows, each by the probe of its fold."""
        return presence(torch.from_numpy(self.outputs(index))[None], [self.spec])[0].numpy()

    def outputs(self, index: NDArray[np.int64]) -> Scores:
        """What weight and bias alone give: the logits, unless the method reads it otherwise."""
        X = np.asarray(self.features[index], np.float32)
        out = np.empty((len(index), self.bias.shape[1]), np.float32)
        for k in np.unique(self.fold[index]):
            mine = self.fold[index] == k
            out[mine] = X[mine] @ self.weight[k].T + self.bias[k]
        if not np.isfinite(out).all():
            bad = int(index[int(np.argmax(~np.isfinite(out).all(1)))])
            raise ValueError(f"scores of row {bad} are not finite: look at its features, or lower the learning rate")
        return out


def crossfit(
    features: Any,
    labels: Labels,
    *,
    spec: ProbeSpec | str = DEFAULT,
    folds: int = 5,
    k: float | None = None,
    max_rows: int | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: bool = True,
) -> CrossFit:
    """Train `folds` probes, each on the rows outside its fold.

    Args:
        features: N×D, an array or memory map; a fold's training rows are copied, the rest is read in pieces.
        spec: the probe; a method's name takes the settings of `DEFAULT`; "auto" trains those of `AUTO` and takes the
            one that `choice.best_for_recovery` calls best.
        k: mean positives per row for the methods that ask.
        max_rows: train each probe on at most so many rows.
    """
    X = as_features(features, "features")
    if isinstance(X, SparseRows):
        raise TypeError(f"features are sparse {X.shape}; recovery takes dense ones: give features.toarray()")
    if labels.num_examples != len(X):
        raise ValueError(f"labels have {labels.num_examples} rows, features {len(X)}: they must be equal")
    if not len(labels.positive_index()[0]):
        raise ValueError(f"labels hold no positive ({labels!r}): nothing can be learnt from them")
    fold = assign_folds(labels, folds, seed=seed)
    specs = [_spec(name, k) for name in AUTO] if spec == "auto" else [_spec(spec, k)]
    weight = np.zeros((len(specs), folds, labels.num_classes, X.shape[1]), np.float32)
    bias = np.zeros((len(specs), folds, labels.num_classes), np.float32)
    options: dict[str, Any] = {"max_rows": max_rows, "seed": seed, "device": device, "progress": progress}
    for f, fitted in enumerate(fold_probes(X, labels, fold, specs, **options)):
        weight[:, f], bias[:, f] = fitted.weight, fitted.bias
    array = features if isinstance(features, np.ndarray) else X.numpy()
    made = [tamed(CrossFit(array, fold, weight[i], bias[i], each, "as asked")) for i, each in enumerate(specs)]
    if len(made) == 1:
        return made[0]
    from onelabel.recovery.choice import best_for_recovery

    return best_for_recovery(made, labels, k=k, seed=seed)


def tamed(fitted: CrossFit, *, most: int = 2000) -> CrossFit:
    """The probes, a class of which that ran away in one fold brought back to the folds' median mean and deviation.

    One curve calibrates all folds together: it bends to a class whose scores are many times as large in one of them,
    and k with it. Deviations are of at most `most` held-out rows of a fold. Where none is over `WILD` times the median,
    nothing changes.
    """
    folds = [np.flatnonzero(fitted.fold == f)[:most] for f in range(len(fitted.bias))]
    if min(map(len, folds)) < 2:
        return fitted
    scores = [fitted.outputs(rows).astype(np.float64) for rows in folds]
    mean, deviation = np.stack([s.mean(0) for s in scores]), np.stack([s.std(0) for s in scores])
    usual, middle = np.median(deviation, 0), np.median(mean, 0)
    wild = (deviation > WILD * usual) & (usual > 0)
    if not wild.any():
        return fitted
    factor = np.where(wild, usual / np.maximum(deviation, 1e-30), 1.0)
    bias = np.where(wild, (fitted.bias - mean) * factor + middle, fitted.bias).astype(np.float32)
    return replace(fitted, weight=(fitted.weight * factor[..., None]).astype(np.float32), bias=bias)


def _spec(spec: ProbeSpec | str, k: float | None) -> ProbeSpec:
    if isinstance(spec, ProbeSpec):
        return spec
    takes = k is not None and "expected_positives" in method_info(spec).defaults
    hyper = {"expected_positives": k} if takes else {}
    return ProbeSpec(spec, hyper, DEFAULT.lr, DEFAULT.batch_size, 0, DEFAULT.epochs)


def pieces(scores: Scored, *, entries: int = CHUNK_ENTRIES) -> Iterator[NDArray[np.int64]]:
    """Row numbers in runs of at most `entries` scores."""
    rows, classes = scores.shape
    step = max(1, entries // max(classes, 1))
    for start in range(0, rows, step):
        yield np.arange(start, min(start + step, rows))
