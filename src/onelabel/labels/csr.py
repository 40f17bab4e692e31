"""Arithmetic of compressed sparse rows: plain functions of NumPy arrays, no Python loop over rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ints = NDArray[np.int64]
#: indptr int64 (N+1), indices int32, values int8: rows ascending, columns ascending within a row, values ±1.
Arrays = tuple[Ints, NDArray[np.int32], NDArray[np.int8]]


def as_array(value: Any, name: str) -> NDArray[Any]:
    """A NumPy view of numbers given as an array, a tensor on any device, or nested lists."""
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        value = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} must be rectangular, got nested lists of unequal lengths") from None
    if array.dtype.kind == "O":  # as pandas gives nullable numbers
        for odd in array.flat:
            if not isinstance(odd, (int, float, np.number, np.bool_)):
                raise TypeError(f"{name} must hold numbers, got {odd!r}")
        array = array.astype(np.float64)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold numbers, got dtype {array.dtype}")
    return array


def as_integers(value: Any, name: str) -> Ints:
    """`value` as int64; floats are accepted only where they are whole."""
    array = np.zeros(0, np.int64) if isinstance(value, Sequence) and not len(value) else as_array(value, name)
    if array.dtype.kind == "b":
        raise TypeError(f"{name} must hold integers, got booleans")
    if array.dtype.kind == "f":
        refuse(array != np.floor(array), array, name, "whole numbers")
    return array.astype(np.int64, copy=False)


def refuse(bad: NDArray[np.bool_], array: NDArray[Any], name: str, expected: str) -> None:
    """Raise, naming the first entry of `array` where `bad` holds and its position."""
    if not bad.any():
        return
    where = np.unravel_index(int(np.argmax(bad)), bad.shape)
    at = ", ".join(f"{axis} {int(i)}" for axis, i in zip(_axes(len(where)), where, strict=True))
    more = f" ({int(bad.sum())} such entries)" if bad.sum() > 1 else ""
    raise ValueError(f"{name} must hold {expected}; got {array[where]} at {at}{more}")


def _axes(ndim: int) -> tuple[str, ...]:
    return {1: ("position",), 2: ("row", "column")}.get(ndim, tuple(f"axis {i} position" for i in range(ndim)))


def matrix_entries(matrix: Any, name: str) -> tuple[Ints, Ints, NDArray[Any], tuple[int, int]]:
    """Rows, columns and values of the nonzero entries of a dense or sparse matrix, and its shape."""
    if hasattr(matrix, "tocoo"):
        # SciPy adds up repeated entries, as everybody who reads its matrices does.
        sparse = matrix.tocsr().tocoo()
        rows, cols, values, shape = sparse.row, sparse.col, sparse.data, sparse.shape
    elif isinstance(matrix, Tensor) and matrix.layout != torch.strided:
        sparse = matrix.detach().cpu().to_sparse_coo().coalesce()
        if sparse.indices().shape[0] != 2:
            raise ValueError(f"{name} must be a matrix N×L, got shape {tuple(sparse.shape)}")
        rows, cols = sparse.indices().numpy()
        values, shape = as_array(sparse.values(), name), tuple(sparse.shape)
    else:
        dense = as_array(matrix, name)
        if dense.ndim != 2:
            raise ValueError(f"{name} must be a matrix N×L, got shape {dense.shape}")
        rows, cols = np.nonzero(dense)
        values, shape = dense[rows, cols], dense.shape
    keep = values != 0
    if not keep.all():
        rows, cols, values = rows[keep], cols[keep], values[keep]
    if not shape[1]:
        raise ValueError(f"{name} must have at least one class, got shape {tuple(shape)}")
    return rows.astype(np.int64), cols.astype(np.int64), values, (int(shape[0]), int(shape[1]))


def check_entries(rows: Ints, cols: Ints, values: NDArray[Any], name: str, expected: str, *legal: float) -> None:
    """Raise, naming row and column, unless every nonzero value is one of `legal`."""
    bad = ~np.isin(values, legal)
    if bad.any():
        i = int(np.argmax(bad))
        more = f" ({int(bad.sum())} such entries)" if bad.sum() > 1 else ""
        raise ValueError(f"{name} must hold only {expected}; got {values[i]} at row {rows[i]}, column {cols[i]}{more}")


def assemble(keys: Ints, values: NDArray[np.int8], shape: tuple[int, int], *, conflicts: str | None) -> Arrays:
    """CSR from flat positions row·L + column in any order; of a repeated position the last value counts.

    Zeros are dropped. `conflicts` names the argument that may not repeat a position with another value; None
    allows it.
    """
    num_examples, num_classes = shape
    if len(keys) and not (keys[1:] > keys[:-1]).all():
        order = np.argsort(keys, kind="stable")
        keys, values = keys[order], values[order]
        same = keys[1:] == keys[:-1]
        if conflicts is not None:
            clash = same & (values[1:] != values[:-1])
            if clash.any():
                i = int(np.argmax(clash))
                row, col = divmod(int(keys[i]), num_classes)
                raise ValueError(
                    f"{conflicts} must give each entry one value; row {row}, column {col} has "
                    f"{values[i]} and {values[i + 1]}"
                )
        last = np.append(~same, True)
        keys, values = keys[last], values[last]
    stored = values != 0
    if not stored.all():
        keys, values = keys[stored], values[stored]
    rows = keys // num_classes
    indptr = np.zeros(num_examples + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=num_examples), out=indptr[1:])
    return indptr, (keys - rows * num_classes).astype(np.int32), values.astype(np.int8, copy=False)


def resolve_index(index: Any, num_examples: int) -> Ints:
    """Row positions from integers of any shape, a slice, or a boolean mask over all rows."""
    if isinstance(index, slice):
        return np.arange(*index.indices(num_examples), dtype=np.int64)
    if isinstance(index, Sequence) and not len(index):
        return np.zeros(0, np.int64)
    array = as_array(index, "index")
    if array.dtype.kind == "b":
        if array.shape != (num_examples,):
            raise ValueError(f"index as a mask must have shape ({num_examples},), got {array.shape}")
        return np.flatnonzero(array)
    array = as_integers(array, "index")
    bad = (array < 0) | (array >= num_examples)
    if bad.any():
        raise IndexError(
            f"index must lie in [0, {num_examples - 1}], got {array[bad][0]}; there are {num_examples} rows"
        )
    return array


def gather(indptr: Ints, flat: Ints) -> tuple[Ints, Ints]:
    """Of all entries stored in rows `flat`: the place of their row in `flat`, and their own position."""
    starts = indptr[flat]
    counts = indptr[flat + 1] - starts
    ends = np.cumsum(counts)
    source = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - counts), counts)
    return np.repeat(np.arange(len(flat)), counts), source


def check_names(class_names: Sequence[str] | None, num_classes: int) -> tuple[str, ...] | None:
    """Class names as a tuple of `num_classes` distinct strings."""
    if class_names is None:
        return None
    if isinstance(class_names, str):
        raise TypeError(f"class_names must be a sequence of strings, got the string {class_names!r}")
    names = tuple(class_names)
    for i, name in enumerate(names):
        if not isinstance(name, str):
            raise TypeError(f"class_names must be strings, got {name!r} at position {i}")
    if len(names) != num_classes:
        raise ValueError(f"class_names must name {num_classes} classes, got {len(names)} names")
    if len(set(names)) != len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(f"class_names must be distinct, got {twice!r} twice")
    return tuple(str(name) for name in names)
