"""Labels against the dense matrix they stand for."""

from __future__ import annotations

import pickle
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onelabel.labels import Labels

patient = settings(deadline=None)
ternary = hnp.arrays(np.int8, st.tuples(st.integers(0, 12), st.integers(1, 9)), elements=st.sampled_from([-1, 0, 0, 1]))


@st.composite
def matrix_and_index(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    dense = draw(ternary.filter(lambda z: len(z) > 0))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    return dense, draw(hnp.arrays(np.int64, shape, elements=st.integers(0, len(dense) - 1)))


@patient
@given(ternary)
def test_dense_round_trip_and_counts(dense: np.ndarray) -> None:
    labels = Labels.from_matrix(dense)
    assert labels.shape == dense.shape
    assert len(labels) == labels.num_examples == dense.shape[0]
    np.testing.assert_array_equal(labels.to_dense(), dense)
    assert labels.to_dense().dtype == np.int8
    assert (labels.indptr.dtype, labels.indices.dtype, labels.values.dtype) == (np.int64, np.int32, np.int8)
    assert 0 not in labels.values
    counts = labels.counts()
    np.testing.assert_array_equal(counts.positives, (dense == 1).sum(0))
    np.testing.assert_array_equal(counts.negatives, (dense == -1).sum(0))
    np.testing.assert_array_equal(counts.unknown, (dense == 0).sum(0))
    np.testing.assert_array_equal(labels.positives_per_row(), (dense == 1).sum(1))
    np.testing.assert_array_equal(labels.positive_index(), np.nonzero(dense == 1))
    assert labels.is_positive_only == (not (dense == -1).any())
    assert labels.has_unknown == bool((dense == 0).any())
    assert labels.is_fully_observed == (not labels.has_unknown)
    rows, cols, values = labels.to_coo()
    assert Labels.from_coo(rows, cols, values, shape=dense.shape) == labels
    assert pickle.loads(pickle.dumps(labels)) == labels


@patient
@given(matrix_and_index())
def test_rows_are_the_dense_rows(case: tuple[np.ndarray, np.ndarray]) -> None:
    dense, index = case
    labels = Labels.from_matrix(dense)
    batch = labels.rows(index)
    assert batch.dtype == torch.int8
    np.testing.assert_array_equal(batch.numpy(), dense[index])
    np.testing.assert_array_equal(labels.rows(torch.from_numpy(index), device="cpu").numpy(), dense[index])
    np.testing.assert_array_equal(labels.rows(index.tolist()).numpy().reshape(-1), dense[index].reshape(-1))
    np.testing.assert_array_equal(labels.take(index.reshape(-1)).to_dense(), dense[index.reshape(-1)])
    mask = dense.sum(1) > 0
    np.testing.assert_array_equal(labels.rows(mask).numpy(), dense[mask])
    np.testing.assert_array_equal(labels.rows(slice(1, None, 2)).numpy(), dense[1::2])
    np.testing.assert_array_equal(labels.take(slice(None, None, -1)).to_dense(), dense[::-1])


@patient
@given(st.data())
def test_updates_override_and_the_last_counts(data: st.DataObject) -> None:
    dense = data.draw(ternary.filter(len))
    entry = st.tuples(
        st.integers(0, dense.shape[0] - 1), st.integers(0, dense.shape[1] - 1), st.sampled_from([-1, 0, 1])
    )
    updates = data.draw(st.lists(entry, max_size=20))
    expected = dense.copy()
    for row, col, value in updates:
        expected[row, col] = value
    rows, cols, values = ([u[i] for u in updates] for i in range(3))
    labels = Labels.from_matrix(dense)
    changed = labels.with_updates(rows, cols, values)
    np.testing.assert_array_equal(changed.to_dense(), expected)
    assert changed == Labels.from_matrix(expected)
    np.testing.assert_array_equal(labels.to_dense(), dense)


@patient
@given(st.lists(ternary, min_size=1, max_size=4))
def test_concatenate(parts: list[np.ndarray]) -> None:
    width = parts[0].shape[1]
    parts = [part for part in parts if part.shape[1] == width]
    joined = Labels.concatenate([Labels.from_matrix(part) for part in parts])
    assert joined == Labels.from_matrix(np.concatenate(parts))


def test_an_update_with_one_value_for_all() -> None:
    labels = Labels.from_classes([0, 1, 2]).with_updates([0, 1], [2, 0], -1)
    np.testing.assert_array_equal(labels.to_dense(), [[1, 0, -1], [-1, 1, 0], [0, 0, 1]])


def test_labels_never_change() -> None:
    source = np.array([0, 1, 2])
    labels = Labels(source, [1, 0], [1, -1], 2)
    source[1] = 2
    np.testing.assert_array_equal(labels.to_dense(), [[0, 1], [-1, 0]])
    with pytest.raises(AttributeError, match="never change"):
        labels.num_classes = 3
    for array in (labels.indptr, labels.indices, labels.values):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_equality_sees_names_and_width() -> None:
    labels = Labels.from_classes([0, 1], class_names=["a", "b"])
    assert labels == Labels.from_classes([0, 1], class_names=("a", "b"))
    assert labels != Labels.from_classes([0, 1])
    assert Labels.from_classes([0, 1]) != Labels.from_classes([0, 1], num_classes=3)
    assert Labels.from_classes([0, 1]) != "labels"


def test_repr_is_one_line() -> None:
    assert repr(Labels.from_true([[1, 0, 0]])) == "Labels(1×3: 1 positive, 2 negative)"
    assert repr(Labels.from_classes(["b"], class_names=["a", "b"])) == "Labels(1×2, named: 1 positive, 0 negative)"


def test_a_million_rows_of_a_thousand_classes_stay_sparse() -> None:
    n, width = 1_000_000, 1_000
    classes = np.random.default_rng(0).integers(0, width, n)
    tracemalloc.start()
    labels = Labels.from_classes(classes, num_classes=width)
    index = np.arange(0, n, n // 512)
    batch = labels.rows(index)
    half = labels.take(slice(0, n, 2))
    labels.with_updates([5], [7], [-1]).counts()
    on_device = labels.on("cpu")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 150e6  # dense would be 1000e6
    assert on_device.layout == "csr"
    assert labels.indices.nbytes + labels.indptr.nbytes + labels.values.nbytes < 14 * n
    np.testing.assert_array_equal(batch.argmax(1), classes[index])
    assert int(batch.sum()) == len(index)
    np.testing.assert_array_equal(half.indices, classes[::2])


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        ([0, 3], IndexError, r"index must lie in \[0, 2\], got 3; there are 3 rows"),
        ([-1], IndexError, r"got -1"),
        ([True, False], ValueError, r"mask must have shape \(3,\), got \(2,\)"),
        ([0.5], ValueError, r"index must hold whole numbers; got 0.5 at position 0"),
        (["a"], TypeError, r"index must hold numbers"),
    ],
)
def test_bad_index(index: list, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Labels.from_classes([0, 1, 2]).rows(index)


def test_take_wants_one_dimension() -> None:
    with pytest.raises(ValueError, match=r"one-dimensional, got shape \(1, 1\)"):
        Labels.from_classes([0, 1, 2]).take([[0]])


def test_concatenate_refuses_other_classes() -> None:
    with pytest.raises(ValueError, match="part 1 is"):
        Labels.concatenate([Labels.from_classes([0, 1]), Labels.from_classes([0, 1, 2])])
    with pytest.raises(ValueError, match="at least one"):
        Labels.concatenate([])
