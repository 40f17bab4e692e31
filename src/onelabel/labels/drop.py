"""Dropping labels: making, from a fully labelled dataset, the observed labels an annotator would have left."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from onelabel.labels.build import true_matrix
from onelabel.labels.csr import Ints, as_array, assemble, refuse
from onelabel.labels.matrix import Labels
from onelabel.system import progress

Scheme = Literal["uniform", "frequency", "size", "weights", "missing"]
Entries = tuple[Ints, Ints]
Bools = NDArray[np.bool_]

#: Rows between two updates of the progress bar.
STEP = 4096
#: The arguments only one scheme reads.
_OWN = {"bias": "frequency", "sizes": "size", "power": "size", "class_weights": "weights"}
_OWN["observed_fraction"] = "missing"


@overload
def drop_labels(
    true: Any,
    *,
    scheme: Scheme = ...,
    seed: int = ...,
    positives: int = ...,
    negatives: int = ...,
    bias: float | None = ...,
    sizes: Any = ...,
    power: float | None = ...,
    class_weights: Any = ...,
    observed_fraction: float | tuple[float, float] | None = ...,
    empty: Literal["keep", "drop"] = ...,
    return_index: Literal[False] = ...,
) -> Labels: ...
@overload
def drop_labels(
    true: Any,
    *,
    scheme: Scheme = ...,
    seed: int = ...,
    positives: int = ...,
    negatives: int = ...,
    bias: float | None = ...,
    sizes: Any = ...,
    power: float | None = ...,
    class_weights: Any = ...,
    observed_fraction: float | tuple[float, float] | None = ...,
    empty: Literal["keep", "drop"] = ...,
    return_index: Literal[True],
) -> tuple[Labels, Ints]: ...
def drop_labels(
    true: Any,
    *,
    scheme: Scheme = "uniform",
    seed: int = 1200,
    positives: int = 1,
    negatives: int = 0,
    bias: float | None = None,
    sizes: Any = None,
    power: float | None = None,
    class_weights: Any = None,
    observed_fraction: float | tuple[float, float] | None = None,
    empty: Literal["keep", "drop"] = "keep",
    return_index: bool = False,
) -> Labels | tuple[Labels, Ints]:
    """Keep a few labels of each row of a fully labelled dataset and make the rest unknown.

    Of each row, `positives` of the classes present stay as +1 (all of them where there are fewer) and `negatives`
    of those absent as −1. `scheme` says which; an annotator names a present class i with probability

    - ``"uniform"``: the same for all. Equal, bit for bit, to the published benchmark of Cole et al. (2021), which
      shuffles each row's positives and then its negatives, even when none is kept, with one
      ``numpy.random.RandomState(seed)``. The order of the classes is part of the draw; VOC's is alphabetical.
    - ``"frequency"``: ∝ frequency_i ** `bias` (default 1: familiar classes are named first; negative: rare ones).
    - ``"size"``: ∝ `sizes`[row, i] ** `power` (default 1), N×L, for instance the largest box's area.
    - ``"weights"``: ∝ `class_weights`[i].
    - ``"missing"``: not one name but missing at random: every entry of either sign is kept with probability
      `observed_fraction`, or a pair of them for (positives, negatives).

    The biases are those the paper's section on limitations asks about. Several positives are drawn one after
    another without replacement (Gumbel top-k). A class of size or weight 0 is never named; negatives are always
    drawn uniformly.

    Rows in which nothing can be named are kept, with a warning that counts them, or left out with
    ``empty="drop"``; the other rows are the same either way. ``return_index=True`` also returns the rows kept.

    Args:
        true: 0/1 matrix N×L (NumPy, torch, SciPy sparse) or fully observed :class:`Labels`.
    """
    present, names = _present(true)
    given = {"bias": bias, "sizes": sizes, "power": power, "class_weights": class_weights}
    given["observed_fraction"] = observed_fraction
    _check(scheme, positives, negatives, empty, given)
    if scheme == "uniform":
        named: Bools = np.any(present, axis=1)
        kept, absent = _published(present, seed, positives, negatives)
    else:
        rng = np.random.default_rng(seed)
        if scheme == "missing":
            kept, absent = _missing(present, rng, observed_fraction)
            named = np.zeros(len(present), np.bool_)
            named[kept[0]] = named[absent[0]] = True
        else:
            log_weight = _log_weights(scheme, present, bias, sizes, power, class_weights)
            kept, named = _gumbel_top(present, log_weight, positives, rng)
            absent = _negatives(present, negatives, rng)
    labels = _labels(kept, absent, present.shape, names)
    lost = int((~named).sum())
    if lost and empty == "keep":
        what = "observed label" if scheme == "missing" else "positive that could be named"
        warnings.warn(
            f"{lost} of {len(named)} rows have no {what} and are kept; empty='drop' leaves them out", stacklevel=2
        )
    index = np.flatnonzero(named) if empty == "drop" else np.arange(len(named))
    if len(index) < len(labels):
        labels = labels.take(index)
    return (labels, index) if return_index else labels


def _present(true: Any) -> tuple[Bools, tuple[str, ...] | None]:
    if not isinstance(true, Labels):
        return true_matrix(true, "true"), None
    if true.has_unknown:
        row = int(np.argmax(np.diff(true.indptr) < true.num_classes))
        raise ValueError(f"true must be fully observed; row {row} of {true!r} has unknown entries")
    return (true.values > 0).reshape(true.shape), true.class_names


def _check(scheme: str, positives: int, negatives: int, empty: str, given: dict[str, Any]) -> None:
    schemes = ("uniform", "frequency", "size", "weights", "missing")
    if scheme not in schemes:
        raise ValueError(f"scheme must be one of {', '.join(schemes)}, got {scheme!r}")
    if empty not in ("keep", "drop"):
        raise ValueError(f"empty must be 'keep' or 'drop', got {empty!r}")
    for name, count in (("positives", positives), ("negatives", negatives)):
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
            raise ValueError(f"{name} must be a whole number of labels, at least 0, got {count!r}")
    if scheme == "missing" and (positives, negatives) != (1, 0):
        raise ValueError("positives and negatives mean nothing to scheme='missing'; give observed_fraction=")
    for name, value in given.items():
        if value is not None and _OWN[name] != scheme:
            raise ValueError(f"{name} is read only by scheme={_OWN[name]!r}, got scheme={scheme!r}")
    for needed, owner in (("sizes", "size"), ("class_weights", "weights"), ("observed_fraction", "missing")):
        if scheme == owner and given[needed] is None:
            raise ValueError(f"{needed} must be given with scheme={scheme!r}")
    for name in ("bias", "power"):
        if given[name] is not None and not np.isfinite(given[name]):
            raise ValueError(f"{name} must be a finite number, got {given[name]!r}")


def _published(present: Bools, seed: int, positives: int, negatives: int) -> tuple[Entries, Entries]:
    # One stream of random numbers runs through all rows, so this loop cannot be vectorised.
    rng = np.random.RandomState(seed)
    shuffle = rng.shuffle
    kept: list[Ints] = []
    absent: list[Ints] = []
    with progress("dropping labels", len(present), wanted=len(present) > 2 * STEP) as advance:
        for row in range(len(present)):
            here = np.flatnonzero(present[row])
            shuffle(here)
            kept.append(here[:positives])
            gone = np.flatnonzero(~present[row])
            shuffle(gone)
            absent.append(gone[:negatives])
            if row % STEP == STEP - 1:
                advance(STEP)
    return _stack(kept), _stack(absent)


def _stack(per_row: list[Ints]) -> Entries:
    counts = np.fromiter(map(len, per_row), np.int64, len(per_row))
    cols = np.concatenate(per_row) if per_row else np.zeros(0, np.int64)
    return np.repeat(np.arange(len(per_row)), counts), cols


def _log_weights(
    scheme: str, present: Bools, bias: float | None, sizes: Any, power: float | None, class_weights: Any
) -> NDArray[np.float64]:
    """log of the weight of every class, L, or of every entry, N×L; −inf where it is never named."""
    if scheme == "frequency":
        weights, exponent = present.mean(0) if len(present) else np.ones(present.shape[1]), bias
    elif scheme == "size":
        weights, exponent = _weights(sizes, "sizes", present.shape), power
    else:
        weights, exponent = _weights(class_weights, "class_weights", present.shape[1:]), None
    with np.errstate(divide="ignore"):
        logs = np.log(weights)
    return np.where(np.isneginf(logs), -np.inf, logs * (1.0 if exponent is None else exponent))


def _weights(value: Any, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    array = as_array(value, name).astype(np.float64)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    refuse(~(np.isfinite(array) & (array >= 0)), array, name, "finite numbers ≥ 0")
    return array


def _gumbel_top(
    present: Bools, log_weight: NDArray[np.float64], count: int, rng: np.random.Generator
) -> tuple[Entries, Bools]:
    """Of each row's present classes the `count` with the largest log weight + Gumbel noise; rows that have any."""
    rows, cols = np.nonzero(present)
    logs = log_weight[cols] if log_weight.ndim == 1 else log_weight[rows, cols]
    possible = np.isfinite(logs)
    rows, cols, logs = rows[possible], cols[possible], logs[possible]
    order = np.lexsort((-(logs + rng.gumbel(size=len(logs))), rows))
    rows, cols = rows[order], cols[order]
    rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
    named = np.zeros(len(present), np.bool_)
    named[rows] = True
    return (rows[rank < count], cols[rank < count]), named


def _blocks(shape: tuple[int, ...], entries: int = 1 << 22) -> Iterator[slice]:
    step = max(1, entries // shape[1])
    return (slice(start, min(start + step, shape[0])) for start in range(0, shape[0], step))


def _negatives(present: Bools, count: int, rng: np.random.Generator) -> Entries:
    """`count` of each row's absent classes, uniformly."""
    count = min(count, present.shape[1])
    found: list[Entries] = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for block in _blocks(present.shape) if count else ():
        noise = rng.random(present[block].shape)
        noise[present[block]] = np.inf
        cols = np.argpartition(noise, count - 1, axis=1)[:, :count]
        rows = np.broadcast_to(np.arange(block.start, block.stop)[:, None], cols.shape)
        chosen = np.isfinite(np.take_along_axis(noise, cols, axis=1))
        found.append((rows[chosen], cols[chosen]))
    return np.concatenate([r for r, _ in found]), np.concatenate([c for _, c in found])


def _missing(present: Bools, rng: np.random.Generator, fraction: Any) -> tuple[Entries, Entries]:
    pair = np.broadcast_to(as_array(fraction, "observed_fraction"), (2,)) if np.size(fraction) in (1, 2) else None
    if pair is None or not ((pair >= 0) & (pair <= 1)).all():
        raise ValueError(f"observed_fraction must be in [0, 1], or a pair of such numbers, got {fraction!r}")
    found: list[tuple[Ints, Ints, Bools]] = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.bool_))]
    for block in _blocks(present.shape):
        here = present[block]
        rows, cols = np.nonzero(rng.random(here.shape) < np.where(here, pair[0], pair[1]))
        found.append((rows + block.start, cols, here[rows, cols]))
    rows, cols, signs = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return (rows[signs], cols[signs]), (rows[~signs], cols[~signs])


def _labels(kept: Entries, absent: Entries, shape: tuple[int, ...], names: tuple[str, ...] | None) -> Labels:
    size = (shape[0], shape[1])
    keys = np.concatenate([kept[0] * size[1] + kept[1], absent[0] * size[1] + absent[1]])
    values = np.repeat(np.array([1, -1], np.int8), [len(kept[0]), len(absent[0])])
    return Labels._of(assemble(keys, values, size, conflicts=None), size[1], names)
