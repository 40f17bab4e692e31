"""Reading observed labels from what people have: class indices or names, ternary matrices, true matrices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelabel.labels.csr import (
    Arrays,
    Ints,
    as_array,
    as_integers,
    assemble,
    check_entries,
    matrix_entries,
)


def _indices_of(names: Iterable[str], lengths: Ints | None, class_names: Sequence[str] | None) -> Ints:
    """Class indices of names; `lengths` are the names per row, None for one."""
    if class_names is None:
        raise ValueError("y holds class names: give class_names=, in the order the columns shall have")
    position = {name: i for i, name in enumerate(class_names)}
    listed = list(names)
    found = np.fromiter((position.get(name, -1) for name in listed), np.int64, len(listed))
    if (found < 0).any():
        i = int(np.argmax(found < 0))
        row = i if lengths is None else int(np.searchsorted(np.cumsum(lengths), i, side="right"))
        raise ValueError(f"y must hold names in class_names; got {listed[i]!r} at row {row}")
    return found


def _is_names(values: Sequence[Any]) -> bool:
    return any(isinstance(value, str) for value in values[:1])


def classes_to_csr(
    y: Any, num_classes: int | None, class_names: Sequence[str] | None
) -> tuple[Arrays, tuple[int, int]]:
    """CSR of the positives `y` names: one class per row (a column of them, too), or a list of classes per row."""
    if hasattr(y, "columns"):  # a list of a DataFrame would be its columns' names
        y = np.asarray(y)
    if getattr(y, "ndim", 0) == 2 and y.shape[1] == 1 and not hasattr(y, "tocoo"):
        y = y.reshape(-1)
    if isinstance(y, np.ndarray) and y.dtype.kind in "UO":
        y = y.tolist()
    lengths: Ints | None = None
    if not isinstance(y, (np.ndarray, Tensor)):
        y = list(y)
        if y and isinstance(y[0], Tensor) and not y[0].ndim:
            y = torch.stack(y).tolist()
        if y and not isinstance(y[0], (str, int, float, np.integer, np.floating)):
            for row, classes in enumerate(y):
                if isinstance(classes, str) or not hasattr(classes, "__len__"):
                    raise TypeError(f"y must hold a list of classes in every row, got {classes!r} at row {row}")
            lengths = np.fromiter(map(len, y), np.int64, len(y))
            y = list(chain.from_iterable(c.tolist() if isinstance(c, Tensor | np.ndarray) else c for c in y))
    if isinstance(y, list) and _is_names(y):
        odd = next((i for i, v in enumerate(y) if not isinstance(v, str)), None)
        if odd is not None:
            raise TypeError(f"y must hold class names only or class indices only, got {y[odd]!r} among names")
        cols = _indices_of(y, lengths, class_names)
    else:
        cols = as_integers(y, "y")
    if cols.ndim != 1:
        raise ValueError(
            f"y must hold one class or a list of classes per row, got shape {cols.shape}; "
            "a matrix of labels goes to Labels.from_matrix"
        )
    if num_classes is None:
        num_classes = len(class_names) if class_names is not None else int(cols.max(initial=-1)) + 1
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes}")
    num_examples = len(cols) if lengths is None else len(lengths)
    rows = np.arange(num_examples) if lengths is None else np.repeat(np.arange(num_examples), lengths)
    bad = (cols < 0) | (cols >= num_classes)
    if bad.any():
        i = int(np.argmax(bad))
        raise ValueError(f"y must hold classes in [0, {num_classes - 1}]; got {cols[i]} at row {rows[i]}")
    shape = (num_examples, int(num_classes))
    ones = np.ones(len(cols), np.int8)
    return assemble(rows * num_classes + cols, ones, shape, conflicts=None), shape


def matrix_to_csr(matrix: Any) -> tuple[Arrays, tuple[int, int]]:
    """CSR of a ternary matrix."""
    rows, cols, values, shape = matrix_entries(matrix, "Z")
    check_entries(rows, cols, values, "Z", "+1 (positive), 0 (unknown), −1 (negative)", 1, -1)
    return assemble(rows * shape[1] + cols, values.astype(np.int8), shape, conflicts=None), shape


def true_matrix(true: Any, name: str) -> NDArray[np.bool_]:
    """A fully labelled 0/1 matrix as booleans, every entry checked."""
    if hasattr(true, "tocoo") or (isinstance(true, Tensor) and true.layout != torch.strided):
        rows, cols, values, shape = matrix_entries(true, name)
        check_entries(rows, cols, values, name, "0 and 1", 1)
        dense = np.zeros(shape, np.bool_)
        dense[rows, cols] = True
        return dense
    array = as_array(true, name)
    if array.ndim != 2 or not array.shape[1]:
        raise ValueError(f"{name} must be a matrix N×L with at least one class, got shape {array.shape}")
    if array.dtype.kind == "b":
        return array
    ones = array == 1
    rows, cols = np.nonzero(ones != (array != 0))
    check_entries(rows, cols, array[rows, cols], name, "0 (absent) and 1 (present)")
    return ones


def true_to_csr(true: Any) -> tuple[Arrays, tuple[int, int]]:
    """CSR of a fully labelled matrix: every entry is stored."""
    present = true_matrix(true, "Y")
    num_examples, num_classes = present.shape
    indptr = np.arange(num_examples + 1, dtype=np.int64) * num_classes
    indices = np.tile(np.arange(num_classes, dtype=np.int32), num_examples)
    values = np.where(present, np.int8(1), np.int8(-1)).reshape(-1)
    return (indptr, indices, values), (num_examples, num_classes)


def coo_entries(rows: Any, cols: Any, values: Any, shape: tuple[int, int]) -> tuple[Ints, NDArray[np.int8]]:
    """Flat positions and values of entries given one by one; a single value serves them all."""
    if len(shape) != 2 or shape[0] < 0 or shape[1] < 1:
        raise ValueError(f"shape must be (examples ≥ 0, classes ≥ 1), got {tuple(shape)}")
    r, c = as_integers(rows, "rows"), as_integers(cols, "cols")
    v = as_array(values, "values") if np.ndim(values) == 0 or len(values) else np.zeros(0, np.int8)
    if r.ndim != 1 or c.shape != r.shape or v.shape not in ((), r.shape):
        raise ValueError(f"rows, cols and values must have one length, got shapes {r.shape}, {c.shape}, {v.shape}")
    v = np.broadcast_to(v, r.shape)
    for name, array, size in (("rows", r, shape[0]), ("cols", c, shape[1])):
        bad = (array < 0) | (array >= size)
        if bad.any():
            i = int(np.argmax(bad))
            raise ValueError(f"{name} must lie in [0, {size - 1}]; got {array[i]} at position {i}")
    check_entries(r, c, v, "values", "+1 (positive), 0 (unknown), −1 (negative)", 1, 0, -1)
    return r * shape[1] + c, v.astype(np.int8)


def check_csr(indptr: Any, indices: Any, values: Any, num_classes: int) -> Arrays:
    """Raise unless the three arrays are canonical: ordered, in range, without repeats, values ±1."""
    ptr, cols = as_integers(indptr, "indptr"), as_integers(indices, "indices")
    vals = as_array(values, "values")
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes}")
    if ptr.ndim != 1 or not len(ptr) or ptr[0] != 0 or ptr[-1] != len(cols) or (np.diff(ptr) < 0).any():
        raise ValueError(f"indptr must ascend from 0 to the {cols.size} stored entries")
    if cols.ndim != 1 or cols.shape != vals.shape:
        raise ValueError(f"indices and values must have one length, got shapes {cols.shape} and {vals.shape}")
    rows = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    bad = (cols < 0) | (cols >= num_classes)
    if bad.any():
        i = int(np.argmax(bad))
        raise ValueError(f"indices must lie in [0, {num_classes - 1}]; got {cols[i]} at row {rows[i]}")
    check_entries(rows, cols, vals, "values", "+1 (positive) and −1 (negative)", 1, -1)
    unordered = (rows[1:] == rows[:-1]) & (cols[1:] <= cols[:-1])
    if unordered.any():
        raise ValueError(f"indices must ascend within a row; those of row {rows[int(np.argmax(unordered))]} do not")
    return ptr.copy(), cols.astype(np.int32), vals.astype(np.int8)
