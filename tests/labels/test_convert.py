"""Encodings used elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onelabel import labels as ol
from onelabel.labels import Labels

patient = settings(deadline=None)
shapes = st.tuples(st.integers(0, 8), st.integers(1, 6))
ternary = hnp.arrays(np.int8, shapes, elements=st.sampled_from([-1, 0, 1]))


@patient
@given(hnp.arrays(np.uint8, shapes, elements=st.sampled_from([0, 1])))
def test_zero_one(matrix: np.ndarray) -> None:
    unknown = ol.from_zero_one(matrix, zero="unknown")
    np.testing.assert_array_equal(unknown.to_dense(), matrix)
    assert unknown.is_positive_only
    negative = ol.from_zero_one(matrix, zero="negative")
    assert negative == Labels.from_true(matrix)
    for labels in (unknown, negative):
        np.testing.assert_array_equal(ol.to_zero_one(labels), matrix)


@patient
@given(ternary)
def test_minus_one_unknown(matrix: np.ndarray) -> None:
    labels = ol.from_minus_one_unknown(matrix)
    meaning = {1: 1, 0: -1, -1: 0}
    expected = np.array([[meaning[int(v)] for v in row] for row in matrix]).reshape(matrix.shape)
    np.testing.assert_array_equal(labels.to_dense(), expected)
    np.testing.assert_array_equal(ol.to_minus_one_unknown(labels), matrix)


@patient
@given(hnp.arrays(np.float32, shapes, elements=st.sampled_from([0.0, 1.0]) | st.floats(-1, -0.0009765625, width=32)))
def test_soft(matrix: np.ndarray) -> None:
    labels, soft = ol.from_soft(matrix)
    np.testing.assert_array_equal(labels.to_dense(), matrix == 1)
    assert soft.values.dtype == np.float32
    assert len(soft) == (matrix < 0).sum()
    np.testing.assert_array_equal(matrix[soft.rows, soft.cols], -soft.values)
    np.testing.assert_array_equal(ol.to_soft(labels, soft), matrix)


def test_names_and_kinds_of_matrices() -> None:
    names = ["a", "b"]
    assert ol.from_zero_one(scipy.sparse.csr_matrix([[0, 1]]), zero="unknown", class_names=names).class_names
    assert ol.from_minus_one_unknown(torch.tensor([[0, 1]]), names).class_names == ("a", "b")
    assert ol.from_soft(torch.tensor([[0.0, -0.5]]), names)[0].class_names == ("a", "b")


def test_what_is_refused() -> None:
    with pytest.raises(TypeError, match="zero"):
        ol.from_zero_one([[0, 1]])
    with pytest.raises(ValueError, match="zero must be 'unknown' or 'negative', got 'absent'"):
        ol.from_zero_one([[0, 1]], zero="absent")
    with pytest.raises(ValueError, match="got -1 at row 0, column 1"):
        ol.from_zero_one([[0, -1]], zero="unknown")
    with pytest.raises(ValueError, match=r"got 2 at row 1, column 0 \(2 such entries\)"):
        ol.from_minus_one_unknown([[0, 1], [2, 3]])
    with pytest.raises(ValueError, match="got nan at row 0, column 0"):
        ol.from_minus_one_unknown([[np.nan]])
    with pytest.raises(TypeError, match="floating point, got int64"):
        ol.from_soft([[0, -1]])
    for value in (0.5, -1.5, np.nan):
        with pytest.raises(ValueError, match=f"got {value} at row 1, column 0"):
            ol.from_soft([[0.0, -0.5], [value, 1.0]])


def test_soft_has_no_negatives() -> None:
    labels, soft = ol.from_soft([[0.0, -0.5], [0.0, 1.0]])
    with pytest.raises(ValueError, match=r"no negatives.*got -1 at row 1, column 0"):
        ol.to_soft(labels.with_updates([1], [0], [-1]), soft)
    with pytest.raises(ValueError, match="row 0, column 1 is positive"):
        ol.to_soft(labels.with_updates([0], [1], [1]), soft)
    with pytest.raises(ValueError, match=r"shape of labels \(1, 2\), got \(2, 2\)"):
        ol.to_soft(labels.take([0]), soft)
