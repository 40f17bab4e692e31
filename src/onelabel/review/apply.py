"""Labels that people gave, put into a dataset before it is trained on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelabel.data import Splits
from onelabel.labels import Labels
from onelabel.recovery.places import rows_by_name
from onelabel.system import reading, say


def relabelled(splits: Splits[Any], path: str | Path) -> Splits[Any]:
    """`splits` with the training rows' observed labels updated.

    `path` holds answers of a review (its database, a URL, an exported Parquet), which override single entries, or whole
    `Labels` (.npz or .parquet, as an audit or `recover` writes them), which take the place of all.
    """
    train = splits.train
    labels = _whole(Path(path))
    if labels is None:
        from onelabel.review.export import load_answers

        answers = load_answers(path)
        names = answers.meta.get("class_names")
        if names is not None and tuple(names) != train.class_names:
            raise ValueError(f"{path}: answers about other classes than those of {splits.name}")
        if not len(answers.rows):
            raise ValueError(f"{path}: nothing was answered yet; open it with `onelabel review`")
        rows = _training_rows(train, answers, path)
        mine = rows >= 0
        say(f"{path}: {int(mine.sum()):,} answers are trained on")
        labels = train.observed.with_updates(rows[mine], answers.cols[mine], answers.values[mine])
    if labels.shape != train.observed.shape:
        raise ValueError(
            f"{path}: labels of shape {labels.shape}, expected {train.observed.shape} as in {train.name}; "
            "where all rows were recovered, train with -o validation=0"
        )
    return replace(splits, train=replace(train, observed=labels))


def _training_rows(train: Any, answers: Any, path: str | Path) -> NDArray[np.int64]:
    """Where each answer's picture is in the training part, −1 where it is not: found by name, where there are names.

    What was recovered need not be what is trained on: `recover photos/` takes all rows, `train` holds some out.
    """
    if answers.examples is None or not hasattr(train, "source"):
        return np.asarray(answers.rows, np.int64)
    rows = rows_by_name(
        answers.rows, answers.examples, ((row, str(name)) for row, name in enumerate(train.source.paths))
    )
    outside = int((rows < 0).sum())
    if outside == len(rows) > 0:
        raise ValueError(f"{path}: no answer is about a picture of {train.name}; give the data that was reviewed")
    if outside:
        say(f"{path}: {outside} of {len(rows)} answers are about pictures outside {train.name} and are left out")
    return rows


def _whole(path: Path) -> Labels | None:
    """`Labels` where the file holds them, None where it must be answers."""
    if path.suffix == ".npz":
        return Labels.load(path)
    if path.suffix == ".parquet" and path.is_file():
        import pyarrow.parquet as parquet

        with reading(path, "labels or answers"):
            columns = parquet.read_schema(path).names
        if "class_index" not in columns:
            return Labels.load(path)
    return None
