"""Draws by name: which labels of the training rows are observed.

    uniform1200              what the dataset's loader drew: for the published sets ROLE's own draw, seed 1200
    uniform:SEED             one present class of each row, all alike
    biased:BIAS[:SEED]       one present class, class i with probability ∝ frequencyᵢ^BIAS, frequencies those of the
                             training rows' true labels (above 0: familiar classes are named first; below 0: rare ones)
    missing:SHARE[:SEED]     every entry of either sign is hidden with probability SHARE (EM Fig. 5c)

Validation and test rows keep all their true labels. A draw covers the training rows alone, but for uniform1200, which
the papers draw before the split.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np

from onelabel.data.base import split_rows
from onelabel.labels import Labels, drop_labels

PUBLISHED = "uniform1200"
#: What a method sees besides the observed positive; others see nothing else.
SUPERVISION = {"bce": "full", "bce-ls": "full", "iun": "positive+negatives", "iu": "positive+negative"}


def supervision_of(method: str, draw: str = PUBLISHED) -> str:
    """What a method's row in the papers was given; where entries are missing at random, what the draw left."""
    return SUPERVISION.get(method, "positive") if not draw.startswith("missing") or method == "bce" else "positive"


def check_draw(name: str) -> str:
    """The name in its full form ("biased:2" → "biased:2:1200"), or a one-line error."""
    if name == PUBLISHED:
        return name
    kind, *numbers = name.split(":")
    counts = {"uniform": (1, 1), "biased": (1, 2), "missing": (1, 2)}
    try:
        values = [float(number) for number in numbers]
    except ValueError:
        values = []
    if kind not in counts or not counts[kind][0] <= len(values) <= counts[kind][1]:
        raise ValueError(
            f"draw: {name!r}, expected {PUBLISHED}, uniform:SEED, biased:BIAS[:SEED] or missing:SHARE[:SEED]"
        )
    if kind == "uniform":
        return f"uniform:{int(values[0])}"
    seed = int(values[1]) if len(values) > 1 else 1200
    return f"{kind}:{values[0]:g}:{seed}"


def observe(train: Any, draw: str, supervision: str = "positive", *, validation: Any = None) -> Labels:
    """The observed labels of a training part under a draw and a supervision."""
    if supervision == "full":
        return Labels.from_true(_true(train), train.class_names)
    positive = _draw(train, check_draw(draw))
    if supervision == "positive":
        return positive
    absent = np.argwhere(_true(train) == 0)
    if supervision == "positive+negatives":
        return positive.with_updates(absent[:, 0], absent[:, 1], -1)
    if supervision == "positive+negative":
        return _one_negative(train, positive, draw, validation)
    raise ValueError(f"supervision: {supervision!r}, expected positive, positive+negative, positive+negatives or full")


def with_labels(part: Any, labels: Labels) -> Any:
    """The same rows with other observed labels."""
    return dataclasses.replace(part, observed=labels)


def subset(rows: int, fraction: float, seed: int) -> np.ndarray:
    """A random share of the training rows, sorted; of one seed, smaller shares lie within larger ones."""
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction: {fraction}, expected a share above 0 and at most 1")
    if fraction == 1:
        return np.arange(rows)
    order = np.random.default_rng([seed, 1200]).permutation(rows)
    return np.sort(order[: max(1, round(fraction * rows))])


def _true(train: Any) -> np.ndarray:
    if train.true is None:
        raise ValueError(f"{train.name}: a draw needs the true labels of the training rows, and nobody knows them here")
    return np.asarray(train.true)


def _draw(train: Any, name: str) -> Labels:
    if name == PUBLISHED:
        observed: Labels = train.observed
        return observed
    kind, *numbers = name.split(":")
    seed = int(numbers[-1])
    options: dict[str, Any] = {}
    if kind == "biased":
        options = {"scheme": "frequency", "bias": float(numbers[0])}
    elif kind == "missing":
        options = {"scheme": "missing", "observed_fraction": 1 - float(numbers[0])}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rows left without a label are part of such a draw
        drawn = drop_labels(_true(train), seed=seed, **options)
    return Labels(drawn.indptr, drawn.indices, drawn.values, drawn.num_classes, train.class_names)


def _one_negative(train: Any, positive: Labels, draw: str, validation: Any) -> Labels:
    """One random true negative a row: from ROLE's own stream of random numbers where the draw is the published one."""
    true = _true(train)
    if draw == PUBLISHED and validation is not None and validation.true is not None:
        first, held = split_rows(len(true) + len(validation.true), 0.2)
        if len(first) == len(true):
            whole = np.empty((len(first) + len(held), true.shape[1]), true.dtype)
            whole[first], whole[held] = true, validation.true
            both = drop_labels(whole, seed=1200, negatives=1).take(first)
            if ((both.to_dense() > 0) == (positive.to_dense() > 0)).all():
                return Labels(both.indptr, both.indices, both.values, both.num_classes, train.class_names)
    noise = np.random.default_rng(1200).random(true.shape)
    noise[true > 0] = np.inf
    columns = noise.argmin(1)
    rows = np.flatnonzero(np.isfinite(noise[np.arange(len(noise)), columns]))
    return positive.with_updates(rows, columns[rows], -1)
