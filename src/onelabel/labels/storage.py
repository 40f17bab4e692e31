"""One file per label matrix: npz, or Parquet with one row per example."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from onelabel.labels.matrix import Labels
from onelabel.system import atomic_path

FORMAT = "onelabel.labels"
VERSION = 1


def save(labels: Labels, path: str | os.PathLike[str]) -> None:
    """Write `labels` to `path`, all or nothing."""
    target = Path(path)
    write = _writer(target, {".npz": _write_npz, ".parquet": _write_parquet})
    with atomic_path(target) as temporary:
        write(labels, str(temporary))


def load(path: str | os.PathLike[str]) -> Labels:
    """Read labels from a file that :func:`save` wrote; anything else is refused in one line."""
    source = Path(path)
    read = _writer(source, {".npz": _read_npz, ".parquet": _read_parquet})
    if not source.is_file():
        raise FileNotFoundError(f"path must be a file of labels; there is no {source}")
    try:
        return read(source)
    except ImportError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"path must be a file written by Labels.save; {source} is not: {reason}") from error


def _writer(path: Path, by_suffix: dict[str, Callable[..., Any]]) -> Callable[..., Any]:
    try:
        return by_suffix[path.suffix.lower()]
    except KeyError:
        raise ValueError(f"path must end in {' or '.join(by_suffix)}, got {str(path)!r}") from None


def _header(labels: Labels) -> str:
    names = list(labels.class_names) if labels.class_names is not None else None
    header = {"format": FORMAT, "version": VERSION, "num_classes": labels.num_classes, "class_names": names}
    return json.dumps(header, ensure_ascii=False)


def _parse_header(text: str) -> tuple[int, list[str] | None]:
    header = json.loads(text)
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(f"its header is not of format {FORMAT!r}")
    if header.get("version") != VERSION:
        raise ValueError(f"it has version {header.get('version')}, this program reads version {VERSION}")
    num_classes, names = header.get("num_classes"), header.get("class_names")
    if type(num_classes) is not int or not (names is None or isinstance(names, list)):
        raise ValueError("its header lacks num_classes or class_names")
    return num_classes, names


def _write_npz(labels: Labels, path: str) -> None:
    header = np.frombuffer(_header(labels).encode(), np.uint8)
    with open(path, "wb") as file:
        np.savez_compressed(file, header=header, indptr=labels.indptr, indices=labels.indices, values=labels.values)


def _read_npz(path: Path) -> Labels:
    if not zipfile.is_zipfile(path):
        raise ValueError("it is not an npz file")
    with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
        missing = {"header", "indptr", "indices", "values"} - set(file.files)
        if missing:
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")
        num_classes, names = _parse_header(file["header"].tobytes().decode())
        return Labels(file["indptr"], file["indices"], file["values"], num_classes, names)


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError("Parquet files need pyarrow: pip install 'onelabel[cli]', or use .npz") from None
    return pyarrow, pyarrow.parquet


def _write_parquet(labels: Labels, path: str) -> None:
    pa, parquet = _arrow()
    if labels.num_observed > np.iinfo(np.int32).max:
        lists = pa.LargeListArray
        offsets = pa.array(labels.indptr, pa.int64())
    else:
        lists = pa.ListArray
        offsets = pa.array(labels.indptr, pa.int32())
    columns = {
        "classes": lists.from_arrays(offsets, pa.array(labels.indices, pa.int32())),
        "values": lists.from_arrays(offsets, pa.array(labels.values, pa.int8())),
    }
    table = pa.table(columns).replace_schema_metadata({FORMAT: _header(labels)})
    parquet.write_table(table, path, compression="zstd")


def _read_parquet(path: Path) -> Labels:
    _, parquet = _arrow()
    with parquet.ParquetFile(path) as file:
        header = (file.schema_arrow.metadata or {}).get(FORMAT.encode())
        if header is None:
            raise ValueError(f"it has no {FORMAT!r} header")
        num_classes, names = _parse_header(header.decode())
        missing = {"classes", "values"} - set(file.schema_arrow.names)
        if missing:
            raise ValueError(f"it lacks the column {', '.join(sorted(missing))}")
        table = file.read(["classes", "values"])
    # A slice of a list column keeps all its children: flatten() respects it, and lengths give the row bounds.
    classes, values = (table.column(name).combine_chunks() for name in ("classes", "values"))
    if classes.null_count or values.null_count:
        raise ValueError("it holds null rows")
    lengths = classes.value_lengths().to_numpy(zero_copy_only=False)
    if not np.array_equal(lengths, values.value_lengths().to_numpy(zero_copy_only=False)):
        raise ValueError("its columns classes and values differ in length")
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    indices, signs = (column.flatten().to_numpy(zero_copy_only=False) for column in (classes, values))
    return Labels(indptr, indices, signs, num_classes, names)
