"""The files that come in: recovered labels and audits, read by record batches."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onelabel.recovery.schema import AUDITED, COLUMNS, RECOVERED, VERSION
from onelabel.system import atomic_path, reading

BATCH = 65_536


@dataclass(frozen=True)
class Source:
    """A Parquet file that was checked to have the columns asked for; `meta` is its JSON header."""

    path: Path
    kind: str
    meta: dict[str, Any]
    rows: int

    @property
    def fingerprint(self) -> str:
        status = self.path.stat()
        return f"{self.path.resolve()}:{status.st_size}:{status.st_mtime_ns}"

    @property
    def class_names(self) -> list[str]:
        return list(self.meta["class_names"])

    @property
    def root(self) -> Path | None:
        """The folder of the dataset; a relative one is relative to the file."""
        root = self.meta.get("root")
        return None if not root else (self.path.parent / os.path.expanduser(root)).resolve()

    def batches(self, size: int = BATCH) -> Iterator[Any]:
        """Record batches with the columns in their declared types."""
        pa, parquet = _arrow()
        schema = pa.schema(list(COLUMNS[self.kind].items()))
        with reading(self.path, "Parquet as onelabel writes it"), parquet.ParquetFile(self.path) as file:
            for batch in file.iter_batches(size, columns=list(COLUMNS[self.kind])):
                yield batch.select(schema.names).cast(schema)


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError("Parquet files need pyarrow: pip install 'onelabel[review]'") from None
    return pyarrow, pyarrow.parquet


def _open(path: str | os.PathLike[str], kind: str) -> Source:
    _, parquet = _arrow()
    target = Path(path)
    if not target.is_file():
        raise FileNotFoundError(f"{target}: there is no such file; expected Parquet as `onelabel recover` writes it")
    with reading(target, "a Parquet file"), parquet.ParquetFile(target) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
    lacking = [name for name in COLUMNS[kind] if name not in schema.names]
    if lacking:
        raise ValueError(f"{target} must have the columns {', '.join(COLUMNS[kind])}; it lacks {', '.join(lacking)}")
    try:
        meta = json.loads((schema.metadata or {})[kind.encode()])
    except (KeyError, ValueError, RecursionError):
        raise ValueError(f"{target} must have a JSON header {kind!r} in its metadata; write it with onelabel") from None
    if not isinstance(meta, dict) or meta.get("schema_version") != VERSION:
        raise ValueError(f"{target} must have schema_version {VERSION} in its header, got {meta!r:.80}")
    if not isinstance(meta.get("root"), str | None) or "\0" in (meta.get("root") or ""):
        raise ValueError(f"{target} must have a folder as root in its header, got {meta['root']!r:.80}")
    return Source(target, kind, meta, rows)


def read_recovered(path: str | os.PathLike[str]) -> Source:
    """Open recovered labels: a file, or a folder (a run) holding ``recovered.parquet``."""
    target = Path(path)
    source = _open(target / "recovered.parquet" if target.is_dir() else target, RECOVERED)
    names = source.meta.get("class_names")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{source.path} must list class_names in its header, got {names!r:.80}")
    return source


def read_audit(path: str | os.PathLike[str]) -> Source:
    """Open the sample that ``onelabel audit plan`` drew."""
    return _open(path, AUDITED)


def write_table(path: str | os.PathLike[str], columns: dict[str, Any], types: dict[str, str], header: Any) -> None:
    """One Parquet file with a JSON header under one key, written whole or not at all."""
    pa, parquet = _arrow()
    (key, meta), target = header, Path(path)
    schema = pa.schema(list(types.items()), metadata={key: json.dumps(meta, ensure_ascii=False)})
    table = pa.table({name: pa.array(columns[name], schema.field(name).type) for name in types}, schema=schema)
    with atomic_path(target) as temporary:
        parquet.write_table(table, temporary, compression="zstd")


def write_recovered(
    path: str | os.PathLike[str], columns: dict[str, Any], *, root: str, class_names: Sequence[str]
) -> None:
    """Write recovered labels; `columns` has one sequence for each column but ``class``, which the names give."""
    names = list(class_names)
    full = {**columns, "class": [names[int(i)] for i in columns["class_index"]]}
    header = {"schema_version": VERSION, "root": root, "class_names": names}
    write_table(path, full, COLUMNS[RECOVERED], (RECOVERED, header))


def write_audit(path: str | os.PathLike[str], columns: dict[str, Any]) -> None:
    """Write an audit's sample."""
    write_table(path, columns, COLUMNS[AUDITED], (AUDITED, {"schema_version": VERSION}))
