"""What an estimator's `y` may be: a class per row, a list of classes per row, a ternary matrix, or `Labels`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onelabel.labels import Labels


def plain(value: Any) -> Any:
    """A tensor as an array, wherever and of what precision it is; anything else as it is."""
    if not isinstance(value, Tensor):
        return value
    value = value.detach().cpu()
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy()


def observed_of(y: Any) -> tuple[Labels, NDArray[Any]]:
    """Observed labels and their classes."""
    names = _column_names(y)
    if isinstance(y, Labels):
        return y, np.array(names if names is not None else range(y.num_classes))
    found = _read(y)
    if isinstance(found, list):
        classes = _sorted({label for row in found for label in row})
        position = {label: i for i, label in enumerate(classes.tolist())}
        return Labels.from_classes([[position[v] for v in row] for row in found], num_classes=len(classes)), classes
    if found.ndim == 2:
        made = Labels.from_matrix(found, class_names=names)
        return made, np.array(names) if names is not None else np.arange(found.shape[1])
    from sklearn.utils.multiclass import check_classification_targets

    check_classification_targets(found)
    classes, position_of = np.unique(found, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y holds {len(classes)} class; a classifier needs at least two")
    return Labels.from_classes(position_of, num_classes=len(classes)), classes


def truth_of(y: Any, classes: NDArray[Any]) -> NDArray[np.bool_]:
    """What `score` takes for present, N×L, columns as in `classes`."""
    found = y.to_dense() if isinstance(y, Labels) else _read(y, warn=False)
    if isinstance(found, list) or found.ndim == 1:
        return _against(found if isinstance(found, list) else [[label] for label in found.tolist()], classes)
    true: NDArray[np.bool_] = np.ascontiguousarray(found > 0)
    names = _column_names(y)
    if names is None or names == classes.tolist() or not all(isinstance(label, str) for label in classes.tolist()):
        return true
    if set(names) != set(classes.tolist()):
        raise ValueError(f"y has columns such as {names[0]!r}, expected the classes that fit saw: {classes[:3]} …")
    return np.ascontiguousarray(true[:, [names.index(name) for name in classes.tolist()]])


def _against(rows: list[Any], classes: NDArray[Any]) -> NDArray[np.bool_]:
    position = {label: i for i, label in enumerate(classes.tolist())}
    true = np.zeros((len(rows), len(classes)), np.bool_)
    for i, row in enumerate(rows):
        true[i, [position[label] for label in row if label in position]] = True
    return true


def _column_names(y: Any) -> list[str] | None:
    """Of `Labels` or a DataFrame, where columns have names."""
    if isinstance(y, Labels):
        return None if y.class_names is None else list(y.class_names)
    columns = getattr(y, "columns", None)
    if columns is None or not all(isinstance(name, str) for name in columns):
        return None
    return list(columns)


def _read(y: Any, *, warn: bool = True) -> list[Any] | NDArray[Any]:
    """Classes by row, a matrix N×L of −1, 0 and 1 with two columns at least, or a class per row.

    A column N×1 is a class per row, as for every scikit-learn classifier, which warns of it.
    """
    y = plain(y)
    if hasattr(y, "toarray"):
        y = y.toarray()
    several = _rows(y)
    if isinstance(several, list):
        return several
    array = np.asarray(y) if several is None else several
    if array.ndim == 2 and array.shape[1] > 1:
        return _signs(array)
    if array.dtype.kind == "f" and array.ndim and np.isnan(array).any():
        raise _missing(int(np.isnan(array.reshape(-1)).argmax()), np.nan)
    from sklearn.utils import column_or_1d

    found: NDArray[Any] = column_or_1d(array, warn=warn)
    return found


def _rows(y: Any) -> list[Any] | NDArray[Any] | None:
    """Classes by row, or a matrix, of what has a list in every row; None where a row is one class."""
    if not isinstance(y, (list, tuple)):
        y = np.asarray(y)
        if y.dtype.kind != "O" or not (y.ndim == 1 or y.shape[1:] == (1,)):
            return None
        y = y.reshape(-1)
    lists = [_is_list(row) for row in y]
    several = any(lists)
    for i, row in enumerate(y):
        if not lists[i] and _is_missing(row):
            raise _missing(i, row)
        if several and not lists[i]:
            raise ValueError(f"y has a list of classes in some rows and {row!r} in row {i}: give a list in every row")
    if not several:
        return None
    rows = [[label.item() if hasattr(label, "item") else label for label in row] for row in y]
    for i, row in enumerate(rows):
        for label in row:
            if _is_missing(label):
                raise _missing(i, label)
    sets = any(isinstance(row, (set, frozenset)) for row in y)
    return np.array(rows) if not sets and _is_matrix(rows) else rows


def _is_matrix(rows: Sequence[Any]) -> bool:
    """Whether nested lists are a ternary matrix: all rows of one length above one and nothing but −1, 0, 1."""
    if len({len(row) for row in rows}) > 1 or len(rows[0]) < 2:
        return False
    return {value for row in rows for value in row} <= {-1, 0, 1}


def _signs(array: NDArray[Any]) -> NDArray[np.float64]:
    """A ternary matrix, every entry checked."""
    try:
        found = array.astype(np.float64)
        wrong = (found != 0) & (found != 1) & (found != -1)
    except (TypeError, ValueError):
        wrong = np.array([[not isinstance(v, (int, float, np.number)) for v in row] for row in array.tolist()])
    if not wrong.any():
        return found
    row, column = np.argwhere(wrong)[0].tolist()
    value = array[row].tolist()[column]
    remedy = "put 0 there" if _is_missing(value) else "classes' names and numbers go in a list per row"
    raise ValueError(
        f"y of shape {array.shape} must hold only +1 (positive), 0 (unknown), −1 (negative); "
        f"got {value!r} at row {row}, column {column}: {remedy}"
    )


def _sorted(classes: set[Any]) -> NDArray[Any]:
    if not classes:
        raise ValueError("y names no class in any row; give each row the classes it is known to have")
    try:
        return np.array(sorted(classes))
    except TypeError:
        kinds = sorted({type(label).__name__ for label in classes})
        raise ValueError(f"y has classes of the types {', '.join(kinds)}: make them all text, or all numbers") from None


def _is_list(row: Any) -> bool:
    return isinstance(row, (list, tuple, set, frozenset)) or getattr(row, "ndim", 0) == 1


def _is_missing(label: Any) -> bool:
    """None, a NaN, or pandas' NA, which is neither equal nor unequal to itself."""
    try:
        return label is None or bool(label != label)
    except TypeError:
        return True


def _missing(row: int, value: Any) -> ValueError:
    remedy = "leave the row out, or give a list of classes per row, [] where none is known"
    return ValueError(f"Input y contains NaN: no class in row {row} ({value!r}); {remedy}")
