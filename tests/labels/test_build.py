"""Building labels from what people have, and what is said when it is wrong."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from onelabel.labels import Labels

NAMES = ["cat", "dog", "owl"]
DENSE = np.array([[1, 0, -1], [0, 0, 0], [-1, 1, 1]], np.int8)


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 4), max_size=5), min_size=1, max_size=8))
def test_lists_of_classes(lists: list[list[int]]) -> None:
    expected = np.zeros((len(lists), 5), np.int8)
    for row, classes in enumerate(lists):
        expected[row, classes] = 1
    np.testing.assert_array_equal(Labels.from_classes(lists, num_classes=5).to_dense(), expected)
    names = [[chr(97 + c) for c in classes] for classes in lists]
    named = Labels.from_classes(names, class_names=["a", "b", "c", "d", "e"])
    np.testing.assert_array_equal(named.to_dense(), expected)


@pytest.mark.parametrize(
    "y",
    [[2, 0], (2, 0), np.array([2, 0], np.uint8), torch.tensor([2, 0]), np.array([2.0, 0.0]), ["owl", "cat"],
     np.array(["owl", "cat"]), np.array(["owl", "cat"], object), [["owl"], ["cat"]],
     [np.array([2]), torch.tensor([0])], [torch.tensor(2), torch.tensor(0)],
     np.array([[2], [0]]), torch.tensor([[2], [0]]), np.array([["owl"], ["cat"]]),
     pd.DataFrame({"label": [2, 0]}), pd.DataFrame({"label": ["owl", "cat"]}), pd.DataFrame({"a": [["owl"], ["cat"]]}),
     pd.Series([2, 0], index=[7, 9]), pd.Series([2, 0], dtype="Int64")],
)  # fmt: skip
def test_one_class_per_row(y: object) -> None:
    labels = Labels.from_classes(y, class_names=NAMES)
    np.testing.assert_array_equal(labels.to_dense(), [[0, 0, 1], [1, 0, 0]])
    assert labels.class_names == ("cat", "dog", "owl")
    assert labels.is_positive_only


def test_the_number_of_classes_is_read_off() -> None:
    assert Labels.from_classes([0, 4]).shape == (2, 5)
    assert Labels.from_classes([0, 4], num_classes=9).shape == (2, 9)
    assert Labels.from_classes([], num_classes=2).shape == (0, 2)


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize(
    "matrix",
    [DENSE, DENSE.tolist(), DENSE.astype(float), torch.from_numpy(DENSE), torch.from_numpy(DENSE).bfloat16(),
     scipy.sparse.csr_matrix(DENSE), scipy.sparse.coo_array(DENSE), scipy.sparse.csc_matrix(DENSE),
     torch.from_numpy(DENSE).to_sparse(), "torch csr", DENSE.astype(object), pd.DataFrame(DENSE),
     pd.DataFrame(DENSE).astype("Int64")],
)  # fmt: skip
def test_ternary_matrices(matrix: object) -> None:
    if isinstance(matrix, str):
        matrix = torch.from_numpy(DENSE).to_sparse_csr()
    labels = Labels.from_matrix(matrix, NAMES)
    np.testing.assert_array_equal(labels.to_dense(), DENSE)
    assert labels.class_names == tuple(NAMES)


def test_explicit_zeros_are_not_stored() -> None:
    matrix = scipy.sparse.csr_matrix((np.array([0, 1]), np.array([0, 1]), np.array([0, 2])), shape=(1, 3))
    assert Labels.from_matrix(matrix).num_observed == 1
    assert Labels.from_coo([0, 0], [0, 1], [0, 1], shape=(1, 3)).num_observed == 1


@pytest.mark.parametrize("kind", [np.array, torch.tensor, scipy.sparse.csr_matrix, lambda y: np.array(y, bool)])
def test_true_labels_are_all_observed(kind: object) -> None:
    true = [[1, 0, 0], [0, 0, 0], [1, 1, 1]]
    labels = Labels.from_true(kind(true))
    assert labels.is_fully_observed
    np.testing.assert_array_equal(labels.to_dense(), 2 * np.array(true) - 1)


def test_coo_merges_agreeing_repeats_only() -> None:
    labels = Labels.from_coo([1, 0, 1], [2, 0, 2], [-1, 1, -1], shape=(2, 3))
    np.testing.assert_array_equal(labels.to_dense(), [[1, 0, 0], [0, 0, -1]])
    with pytest.raises(ValueError, match="row 1, column 2 has -1 and 1"):
        Labels.from_coo([1, 0, 1], [2, 0, 2], [-1, 1, 1], shape=(2, 3))


E_CLASSES = [
    ({"y": [0, 3], "num_classes": 3}, ValueError, r"y must hold classes in \[0, 2\]; got 3 at row 1"),
    ({"y": [[0], [], [1, -1]], "num_classes": 3}, ValueError, r"got -1 at row 2"),
    ({"y": [0.5]}, ValueError, r"y must hold whole numbers; got 0.5 at position 0"),
    ({"y": [True, False]}, TypeError, r"y must hold integers, got booleans"),
    ({"y": ["cat"]}, ValueError, r"give class_names="),
    ({"y": ["cat", "cow"], "class_names": NAMES}, ValueError, r"names in class_names; got 'cow' at row 1"),
    ({"y": [[], ["cat"], ["dog", "cow"]], "class_names": NAMES}, ValueError, r"got 'cow' at row 2"),
    ({"y": ["cat", 1], "class_names": NAMES}, TypeError, r"got 1 among names"),
    ({"y": [[0], 1]}, TypeError, r"a list of classes in every row, got 1 at row 1"),
    ({"y": np.zeros((2, 2), int)}, ValueError, r"got shape \(2, 2\); a matrix of labels goes to"),
    (
        {"y": pd.DataFrame({"cat": [1, 0], "dog": [0, 1]})},
        ValueError,
        r"got shape \(2, 2\); a matrix of labels goes to",
    ),
    ({"y": [0, None]}, TypeError, r"y must hold numbers, got None"),
    ({"y": pd.Series([0, None], dtype="Int64")}, TypeError, r"y must hold numbers, got <NA>"),
    ({"y": []}, ValueError, r"num_classes must be at least 1, got 0"),
    ({"y": [0], "num_classes": 2, "class_names": NAMES}, ValueError, r"class_names must name 2 classes, got 3 names"),
    ({"y": [0], "class_names": ["a", "a"]}, ValueError, r"distinct, got 'a' twice"),
    ({"y": [0], "class_names": ["a", 1]}, TypeError, r"must be strings, got 1 at position 1"),
    ({"y": [0], "class_names": "ab"}, TypeError, r"got the string 'ab'"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), E_CLASSES)
def test_bad_classes(arguments: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Labels.from_classes(**arguments)


E_MATRIX = [
    ([[0, 1], [0, 2]], ValueError, r"got 2 at row 1, column 1"),
    ([[0, 0.5]], ValueError, r"got 0.5 at row 0, column 1"),
    ([[0, np.nan], [3, 0]], ValueError, r"got nan at row 0, column 1 \(2 such entries\)"),
    (np.array([[255]], np.uint8), ValueError, r"got 255 at row 0, column 0"),
    ([0, 1], ValueError, r"must be a matrix N×L, got shape \(2,\)"),
    (np.zeros((2, 0)), ValueError, r"at least one class, got shape \(2, 0\)"),
    ([[0], [0, 1]], ValueError, r"Z must be rectangular"),
    ([["a"]], TypeError, r"Z must hold numbers"),
    (pd.DataFrame([[0, None]], dtype="Int64"), TypeError, r"Z must hold numbers, got <NA>"),
    (np.array([[1, "a"]], object), TypeError, r"Z must hold numbers, got 'a'"),
    (scipy.sparse.csr_matrix([[0, 5]]), ValueError, r"got 5 at row 0, column 1"),
]


@pytest.mark.parametrize(("matrix", "error", "message"), E_MATRIX)
def test_bad_matrix(matrix: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Labels.from_matrix(matrix)


@pytest.mark.parametrize("value", [-1, 2, 0.5, np.nan])
def test_true_labels_must_be_zero_or_one(value: float) -> None:
    with pytest.raises(
        ValueError, match=rf"Y must hold only 0 \(absent\) and 1 \(present\); got {value:g}.* at row 1, "
    ):
        Labels.from_true(np.array([[0, 1], [value, 1]]))


E_COO = [
    (([0, 2], [0, 0], [1, 1]), r"rows must lie in \[0, 1\]; got 2 at position 1"),
    (([0, 1], [0, -1], [1, 1]), r"cols must lie in \[0, 2\]; got -1 at position 1"),
    (([0], [0], [2]), r"values must hold only .*; got 2 at row 0, column 0"),
    (([0], [0, 1], [1]), r"must have one length, got shapes \(1,\), \(2,\), \(1,\)"),
]


@pytest.mark.parametrize(("entries", "message"), E_COO)
def test_bad_entries(entries: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Labels.from_coo(*entries, shape=(2, 3))
    with pytest.raises(ValueError, match=message):
        Labels.from_classes([0, 0], num_classes=3).with_updates(*entries)


@pytest.mark.parametrize("shape", [(2,), (-1, 2), (2, 0)])
def test_bad_shape(shape: tuple) -> None:
    with pytest.raises(ValueError, match="shape must be"):
        Labels.from_coo([], [], [], shape=shape)


E_CSR = [
    (([0, 1], [0, 1], [1, 1], 2), "indptr must ascend from 0 to the 2 stored entries"),
    (([0, 2, 1, 2], [0, 1], [1, 1], 2), "indptr must ascend"),
    (([0, 2], [0, 2], [1, 1], 2), r"indices must lie in \[0, 1\]; got 2 at row 0"),
    (([0, 2], [1, 0], [1, 1], 2), "ascend within a row; those of row 0"),
    (([0, 2], [1, 1], [1, 1], 2), "ascend within a row"),
    (([0, 1], [1], [0], 2), "values must hold only .* got 0 at row 0, column 1"),
    (([0, 1], [1], [1, 1], 2), "one length"),
    (([0, 1], [0], [1], 0), "num_classes must be at least 1, got 0"),
]


@pytest.mark.parametrize(("arrays", "message"), E_CSR)
def test_bad_arrays(arrays: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Labels(*arrays)
