"""What an estimator's y may be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from sklearn.exceptions import DataConversionWarning

from onelabel.probes.targets import observed_of, truth_of

ONE = [0, 2, 1, 2]
NAMES = ["ant", "bee", "猫|x"]
NAMED = [NAMES[i] for i in ONE]
WANT = np.eye(3, dtype=np.int8)[ONE]


def _object(rows: list[Any]) -> np.ndarray:
    array = np.empty(len(rows), object)
    for i, row in enumerate(rows):
        array[i] = row
    return array


@pytest.mark.parametrize("kind", ["array", "float", "frame", "strings", "categories", "tensor", "sparse", "Int64"])
def test_a_column_is_a_class_per_row_and_warns(kind: str) -> None:
    column = np.array(ONE)[:, None]
    y: Any = {
        "array": column,
        "float": column.astype(float),
        "frame": pd.DataFrame({"label": ONE}),
        "strings": pd.DataFrame({"label": NAMED}),
        "categories": pd.DataFrame({"label": pd.Series(NAMED, dtype="category")}),
        "tensor": torch.tensor(ONE)[:, None],
        "sparse": scipy.sparse.csr_matrix(column),
        "Int64": pd.DataFrame({"label": pd.Series(ONE, dtype="Int64")}),
    }[kind]
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        labels, classes = observed_of(y)
    np.testing.assert_array_equal(labels.to_dense(), WANT)
    assert classes.tolist() == (NAMES if kind in ("strings", "categories") else [0, 1, 2])
    np.testing.assert_array_equal(truth_of(y, classes), WANT > 0)


def test_a_column_of_zeros_and_ones_is_two_classes_as_their_list_is() -> None:
    with pytest.warns(DataConversionWarning):
        labels, classes = observed_of(np.array([[0], [1], [1]]))
    assert classes.tolist() == [0, 1]
    np.testing.assert_array_equal(labels.to_dense(), [[1, 0], [0, 1], [0, 1]])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "y",
    [
        [[n] for n in NAMED],
        [{n} for n in NAMED],
        [frozenset([n]) for n in NAMED],
        tuple((n,) for n in NAMED),
        [np.array([n]) for n in NAMED],
        _object([np.array([n]) for n in NAMED]),
        pd.Series([[n] for n in NAMED]),
        pd.Series([frozenset([n]) for n in NAMED]),
        pd.Series([np.array([n]) for n in NAMED]),
        pd.DataFrame({"labels": [[n] for n in NAMED]}),
        NAMED,
        np.array(NAMED),
        pd.Series(NAMED),
    ],
    ids=lambda y: type(y).__name__,
)
def test_classes_in_any_container(y: Any) -> None:
    labels, classes = observed_of(y)
    np.testing.assert_array_equal(labels.to_dense(), WANT)
    assert classes.tolist() == NAMES
    np.testing.assert_array_equal(truth_of(y, classes), WANT > 0)


def test_sets_are_classes_and_lists_of_signs_a_matrix() -> None:
    labels, classes = observed_of([{0, 1}, {1, 0}, {0, 1}])
    np.testing.assert_array_equal(labels.to_dense(), np.ones((3, 2)))
    assert classes.tolist() == [0, 1]
    labels, _ = observed_of([[0, 1], [1, -1]])
    np.testing.assert_array_equal(labels.to_dense(), [[0, 1], [1, -1]])
    labels, _ = observed_of([[], [torch.tensor(2)], (np.int64(0), 1)])
    np.testing.assert_array_equal(labels.to_dense(), [[0, 0, 0], [0, 0, 1], [1, 1, 0]])


@pytest.mark.parametrize(
    "y",
    [
        ["ant", None, "bee"],
        ["ant", float("nan"), "bee"],
        np.array([0.0, np.nan, 1.0]),
        pd.Series(["ant", None, "bee"]),
        pd.Series(["ant", None, "bee"], dtype="string"),
        pd.DataFrame({"label": pd.Series([1, None, 0], dtype="Int64")}),
        [["ant"], None, ["bee"]],
        [["ant"], ["bee", None], ["bee"]],
    ],
    ids=str,
)
def test_a_row_without_a_class_is_named(y: Any) -> None:
    with pytest.raises(ValueError, match=r"no class in row 1 \(.*\); leave the row out, or give a list .*\[\]"):
        observed_of(y)


def test_wrong_matrices_are_answered() -> None:
    matrix = np.array([[0.0, 1.0], [1.0, np.nan]])
    for y in (matrix, matrix.tolist(), pd.DataFrame(matrix).astype("Int64"), pd.DataFrame(matrix).astype(object)):
        with pytest.raises(ValueError, match=r"\(2, 2\) must hold only \+1 .* got .* at row 1, column 1: put 0 there"):
            observed_of(pd.DataFrame(y) if isinstance(y, list) else y)
    for y, got in ((np.array([["ant", "bee"]]), "'ant'"), (np.array([[0, 2], [1, 3]]), "2 at row 0, column 1")):
        with pytest.raises(ValueError, match=rf"got {got}.*: classes' names and numbers go in a list per row"):
            observed_of(y)


def test_what_cannot_be_meant_is_answered() -> None:
    for y, said in (
        ([[1], 2, [3]], "a list of classes in some rows and 2 in row 1"),
        ([[1], ["ant"]], "types int, str: make them all text, or all numbers"),
        ([[], []], "names no class in any row"),
    ):
        with pytest.raises(ValueError, match=said):
            observed_of(y)
