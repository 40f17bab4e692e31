"""Labels that people gave, put into a dataset before it is trained on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from onelabel.data import Splits
from onelabel.labels import Labels
from onelabel.system import reading


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
        labels = train.observed.with_updates(answers.rows, answers.cols, answers.values)
    if labels.shape != train.observed.shape:
        raise ValueError(f"{path}: labels of shape {labels.shape}, expected {train.observed.shape} as in {train.name}")
    return replace(splits, train=replace(train, observed=labels))


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
