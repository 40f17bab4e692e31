"""The summary's numbers."""

from __future__ import annotations

import numpy as np

from onelabel.labels import Labels, Summary


def test_summary() -> None:
    dense = [[1, 0, -1, 0], [0, 0, 0, 0], [-1, 0, -1, 0], [1, 0, 0, 1]]
    summary = Labels.from_matrix(dense, ["ant", "bee", "cow", "dog"]).summary()
    assert summary == Summary(
        num_examples=4,
        num_classes=4,
        positives=3,
        negatives=3,
        unknown=10,
        rows_without_label=1,
        rows_without_positive=2,
        mean_positives=0.75,
        min_positives=0,
        max_positives=2,
        classes_never_observed=("bee",),
        classes_never_positive=("bee", "cow"),
    )
    text = str(summary)
    for part in ("4 examples, 4 classes", "62.50%", "mean 0.75, min 0, max 2", "no label: 1", "observed: bee\n"):
        assert part in text


def test_summary_of_nothing_and_of_much() -> None:
    assert "0 examples" in str(Labels.from_classes([], num_classes=3).summary())
    text = str(Labels.from_matrix(np.eye(1, 100, dtype=np.int8)).summary())
    assert "1, 2, 3, 4, 5, 6, 7, 8, … (99 in all)" in text
