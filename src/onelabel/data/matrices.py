"""A features matrix for data that is not pictures: npy, npz, Parquet or ARFF."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onelabel.labels import Labels
from onelabel.system import need, reading

from .arff import read_arff, read_arff_features
from .base import Draw, Part, Splits, make_splits
from .own import mention_hidden, mention_untrained
from .report import DataError, Report

#: Label matrices by what a file calls them.
Given = dict[str, Any]
Known = NDArray[np.uint8] | Labels | tuple[Labels, NDArray[np.uint8]]
FORMATS = (".npy", ".npz", ".parquet", ".arff")
FEATURE_KEYS = ("X", "features", "x", "embeddings", "embedding")
LABEL_KEYS = ("true", "observed", "y", "Y", "labels")


def load_matrix(
    path: str | Path,
    *,
    labels: str | Path | Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    draw: Draw | None = None,
    report: Report | None = None,
) -> Splits[Any]:
    """Rows of features with their labels.

    - `.npz`: `X` (or `features`), `true` (0/1) or `observed` (1, 0, −1) or both, or else `y`; perhaps `class_names`,
      and `X_test` with `true_test` (or `observed_test`, `y_test`).
    - `.npy`: the features; `labels` is a .npy of N×L.
    - `.parquet`: `labels` names the label columns; the other numeric columns, or one list column, are the features.
    - `.arff`: MEKA's `-C`, or Mulan's .xml beside the file, says which attributes are labels; else `labels`. Beside a
      file whose name ends in `-train`, the one that ends in `-test` is the test part.

    What is called neither true nor observed counts as clean where it is of 0 and 1, and observed labels are drawn from
    it; with a −1 it is observed as it is.
    """
    file = Path(path).expanduser()
    report = report if report is not None else Report()
    suffix = file.suffix.lower()
    test: tuple[Any, Given] | None = None
    of_test = file
    names = None if class_names is None else tuple(map(str, class_names))
    if suffix == ".npz":
        X, y, test, saved = _npz(file)
        names = names or saved
    elif suffix == ".npy":
        if not isinstance(labels, str | Path):
            raise DataError(f"labels: {labels!r}, expected a .npy file of N×L labels beside {file.name}")
        X, y = _load(file), {"y": _load(Path(labels))}
    elif suffix == ".parquet":
        X, found, columns = _parquet(file, _column_names(labels))
        y, names = {"y": found}, names or columns
    elif suffix == ".arff":
        X, found, columns = read_arff(file, _column_names(labels) or None)
        y, names = {"y": found}, names or columns
        if file.stem.endswith("-train") and (other := file.with_name(file.stem[:-5] + "test.arff")).exists():
            X_test, found, _ = read_arff(other, columns)
            test, of_test = (X_test, {"y": found}), other
    else:
        raise DataError(f"{file}: expected .npy, .npz, .parquet or .arff")
    rows: dict[Part, NDArray[np.float32]] = {"train": _features(X, file)}
    known: dict[Part, Known] = {}
    first = next(iter(y.values()))
    width = np.asarray(first).shape[1] if np.ndim(first) == 2 else 0
    names = names or tuple(str(column) for column in range(width))
    known["train"] = _known(y, len(rows["train"]), names, file)
    if test is not None:
        rows["test"] = _features(test[0], of_test)
        if rows["test"].shape[1] != rows["train"].shape[1]:
            wide, expected = (rows[part].shape[1] for part in ("test", "train"))
            raise DataError(f"{of_test}: the test part has {wide} features, expected {expected} as in training")
        known["test"] = _known(test[1], len(rows["test"]), names, file)
    for part, matrix in rows.items():
        bad = np.flatnonzero(~np.isfinite(matrix).all(1)).tolist()
        for row in bad:
            report.add("malformed", f"{file.name}: {part} row {row}", "a feature is not finite")
    keep: dict[Part, NDArray[np.bool_]] = {
        part: np.asarray(np.isfinite(matrix).all(1)) for part, matrix in rows.items()
    }
    splits = make_splits(
        file.stem, names, rows, known, draw=draw or Draw(), report=report, keep=keep, notes=("a features matrix",)
    )
    mention_untrained(splits, rows)
    mention_hidden(splits, known["train"])
    return splits


def read_features(path: str | Path, *, without: Collection[str] = ()) -> NDArray[Any]:
    """The features alone of a file that `load_matrix` reads, N×D: of rows whose labels nobody knows.

    Columns (attributes) that have a name of `without`, the classes, are no features. `.npy` is mapped, not read.
    """
    file = Path(path).expanduser()
    suffix = file.suffix.lower()
    if suffix not in FORMATS:
        raise DataError(f"{file}: expected {', '.join(FORMATS)}")
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such file")
    if suffix == ".npz":
        with reading(file, "a readable .npz file", kind=DataError), np.load(file, allow_pickle=False) as archive:
            name = next((name for name in FEATURE_KEYS if name in archive.files), None)
            if name is None:
                raise DataError(f"{file}: holds {', '.join(archive.files)}; expected one of {', '.join(FEATURE_KEYS)}")
            X = archive[name]
    elif suffix == ".npy":
        X = _load(file)
    elif suffix == ".parquet":
        table = _table(file)
        X = _parquet_features(table, [name for name in table.column_names if name not in without], file)
    else:
        X = read_arff_features(file, without=without)
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        raise DataError(f"{file}: features of shape {X.shape} and type {X.dtype}, expected N×D numbers")
    return X


def _column_names(labels: str | Path | Sequence[str] | None) -> list[str]:
    if labels is None:
        return []
    return [str(labels)] if isinstance(labels, str | Path) else [str(name) for name in labels]


def _load(file: Path) -> NDArray[Any]:
    with reading(file, "a .npy file", kind=DataError):
        array: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
        return array


def _npz(file: Path) -> tuple[Any, Given, tuple[Any, Given] | None, tuple[str, ...] | None]:
    with reading(file, "a readable .npz file", kind=DataError), np.load(file, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    data = next((name for name in FEATURE_KEYS if name in arrays), None)
    labels = _labels_of(arrays, "")
    if data is None or not labels:
        raise DataError(f"{file}: holds {', '.join(arrays)}; expected X and one of {', '.join(LABEL_KEYS)}")
    names = next((arrays[name] for name in ("class_names", "classes") if name in arrays), None)
    if names is not None and names.ndim != 1:
        raise DataError(f"{file}: class names of shape {names.shape}; expected one name a class")
    test = None
    if f"{data}_test" in arrays:
        of_test = _labels_of(arrays, "_test")
        if not of_test:
            raise DataError(f"{file}: {data}_test without labels; expected one of true_test, observed_test, y_test")
        test = (arrays[f"{data}_test"], of_test)
    return arrays[data], labels, test, None if names is None else tuple(str(name) for name in names)


def _labels_of(arrays: Mapping[str, Any], end: str) -> Given:
    """`true` and `observed`, whichever are there, or else an array by another name."""
    found = [name for name in LABEL_KEYS if name + end in arrays]
    said = [name for name in found if name in ("true", "observed")]
    return {name: arrays[name + end] for name in said or found[:1]}


def _parquet(file: Path, labels: list[str]) -> tuple[Any, Any, tuple[str, ...]]:
    table = _table(file)
    missing = [name for name in labels if name not in table.column_names]
    if not labels or missing:
        given = f"no column {missing[0]!r}" if missing else "which columns are labels?"
        raise DataError(f"{file}: {given}; it has {', '.join(table.column_names[:20])}; pass -o labels= (labels=)")
    X = _parquet_features(table, [name for name in table.column_names if name not in labels], file)
    with reading(file, "a matrix with labels of 1, 0 and −1", kind=DataError):
        y = np.stack([table[name].cast(need("pyarrow", "cli").int8()).to_numpy() for name in labels], axis=1)
    return X, y, tuple(labels)


def _table(file: Path) -> Any:
    with reading(file, "a Parquet file", kind=DataError):
        return need("pyarrow.parquet", "cli").read_table(file)


def _parquet_features(table: Any, rest: list[str], file: Path) -> NDArray[np.float32]:
    """One column of lists, else the numeric columns, of those that are no labels."""
    arrow = need("pyarrow", "cli")
    lists = [name for name in rest if arrow.types.is_list(table.schema.field(name).type)]
    lists += [name for name in rest if arrow.types.is_fixed_size_list(table.schema.field(name).type)]
    if lists:
        column = next((name for name in FEATURE_KEYS if name in lists), lists[0])
        try:
            X = np.array(table[column].to_pylist(), np.float32)
        except (ValueError, TypeError):
            raise DataError(f"{file}: {column} holds lists of different lengths, expected one length") from None
    else:
        kinds = (arrow.types.is_integer, arrow.types.is_floating, arrow.types.is_boolean)
        numeric = [name for name in rest if any(kind(table.schema.field(name).type) for kind in kinds)]
        if not numeric:
            raise DataError(f"{file}: no numeric column besides the labels")
        X = np.stack([table[name].cast(arrow.float32()).to_numpy() for name in numeric], axis=1)
    return X


def _features(X: Any, file: Path) -> NDArray[np.float32]:
    with reading(file, "a matrix of numbers", kind=DataError):
        matrix = np.asarray(X, np.float32)
    if matrix.ndim != 2:
        raise DataError(f"{file}: features of shape {matrix.shape}, expected N×D")
    return matrix


def _known(given: Given, rows: int, names: tuple[str, ...], file: Path) -> Known:
    """Clean labels, observed ones, or both, as the arrays' names say."""
    found = {name: _ternary(y, name, rows, names, file) for name, y in given.items()}
    true, observed = found.get("true"), found.get("observed")
    for name, y in found.items():
        if name not in ("true", "observed"):  # not said: where nothing is known to be absent, all is known
            true, observed = (None, y) if (y < 0).any() else (y, None)
    if true is None:
        return Labels.from_matrix(observed, names)
    if (true < 0).any() and (true == 0).any():
        raise DataError(f"{file}: true holds −1 and 0, expected 1 and 0; call it observed if 0 means unknown")
    clean = (true > 0).astype(np.uint8)
    if observed is None:
        return clean
    against = np.argwhere((observed != 0) & ((observed > 0) != (clean > 0)))
    if len(against):
        row, column = against[0]
        raise DataError(f"{file}: row {row}, {names[column]}: observed and true contradict each other")
    return Labels.from_matrix(observed, names), clean


def _ternary(y: Any, name: str, rows: int, names: tuple[str, ...], file: Path) -> NDArray[np.int8]:
    matrix = np.asarray(y)
    what = "labels" if name not in ("true", "observed") else name
    if matrix.shape != (rows, len(names)):
        raise DataError(f"{file}: {what} of shape {matrix.shape}, expected {rows} rows × {len(names)} classes")
    if matrix.dtype.kind not in "biuf":
        raise DataError(f"{file}: {what} of type {matrix.dtype}, expected 1, 0 and −1")
    if not np.isin(matrix, (-1, 0, 1)).all():
        raise DataError(f"{file}: {what} hold {np.setdiff1d(matrix, (-1, 0, 1))[0]}, expected 1, 0 and −1")
    return matrix.astype(np.int8)
