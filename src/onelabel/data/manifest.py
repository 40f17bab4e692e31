"""A manifest: one Parquet row per picture with its path, size, hash and labels, built once and then kept up to date."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ._files import atomic_file, need, progress
from .folders import scan_folder
from .images import ImageError, inspect_image
from .own import Records
from .pool import process_map
from .report import Problem, Report
from .tables import read_records

_CHUNK = 512  # pictures a worker looks at before it answers
_GROUP = 16384  # rows written at a time: what the main process holds
_WHOLE = 32 << 20  # larger files are hashed in blocks


@dataclass(frozen=True)
class Manifest:
    """A written manifest; read it with `load_dataset(path)`."""

    path: Path
    rows: int
    reused: int  # rows taken over from the previous manifest, because size and modification time are the same
    report: Report


def build_manifest(
    source: str | Path,
    out: str | Path,
    *,
    root: str | Path | None = None,
    decode: bool = False,
    workers: int | None = None,
    strict: bool = False,
) -> Manifest:
    """Write a manifest of a folder per class, or of a table of paths and labels.

    Columns: path, bytes, mtime_ns, hash (BLAKE2b, 128 bits), width, height, format, mode, labels, negatives, split,
    problem (why a picture cannot be used, or ""), detail, notes (such as grey or rotated). Where `out` exists, only
    pictures whose size or modification time differ are read. The file is replaced at the end, in one step.

    Args:
        root: for a table, the folder that its paths are relative to.
        decode: also decode every picture, which finds truncated ones (as slow as decoding is).
    """
    report = Report(strict=strict)
    where, target = Path(source).expanduser(), Path(out)
    if where.is_dir():
        records, base = scan_folder(where, report), where
    else:
        table = read_records(where, report, root=root)
        records, base = table.records, table.root
    before = _previous(target, decode)
    parquet, arrow = need("pyarrow.parquet", "cli"), need("pyarrow", "cli")
    schema = _schema(arrow, base.resolve(), decode)
    reused = 0
    first: dict[str, str] = {}
    with (
        progress(f"manifest of {where.name}", len(records)) as advance,
        atomic_file(target) as file,
        parquet.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        group: list[dict[str, Any]] = []
        for row in _rows(records, base, before, decode, workers):
            reused += row.pop("reused")
            _note(row, first, report)
            group.append(row)
            if len(group) == _GROUP:
                writer.write_table(arrow.Table.from_pylist(group, schema))
                group = []
            advance(1)
        writer.write_table(arrow.Table.from_pylist(group, schema))
    return Manifest(target, len(records), reused, report)


def _rows(
    records: Records, base: Path, before: dict[str, dict[str, Any]], decode: bool, workers: int | None
) -> Iterator[dict[str, Any]]:
    """The rows in order: old ones where nothing changed, new ones from the workers."""
    chunks = [records.names[start : start + _CHUNK] for start in range(0, len(records), _CHUNK)]
    # Only what the worker must compare travels to it.
    known = [{name: _mark(before[name]) for name in chunk if name in before} for chunk in chunks]
    count = 1 if len(chunks) < 3 and not decode else workers
    looked = process_map(partial(_look, str(base), decode), zip(chunks, known, strict=True), workers=count)
    number = 0
    for chunk, answers in zip(chunks, looked, strict=True):
        for name, answer in zip(chunk, answers, strict=True):
            row = dict(before[name]) if answer is None else answer
            row["reused"] = answer is None
            row["path"] = name
            row["labels"] = list(records.positives[number])
            row["negatives"] = list(records.negatives[number])
            row["split"] = records.parts[number] or ""
            number += 1
            yield row


def _mark(row: dict[str, Any]) -> tuple[int, int]:
    return row["bytes"], row["mtime_ns"]


def _look(base: str, decode: bool, work: tuple[list[str], dict[str, tuple[int, int]]]) -> list[dict[str, Any] | None]:
    names, known = work
    return [_examine(base, name, known.get(name), decode) for name in names]


def _examine(base: str, name: str, known: tuple[int, int] | None, decode: bool) -> dict[str, Any] | None:
    """A picture's row without its labels; None where size and time are as known."""
    row: dict[str, Any] = dict(_EMPTY)
    path = os.path.join(base, name)
    try:
        status = os.stat(path)
        if known == (status.st_size, status.st_mtime_ns):
            return None
        row.update(bytes=status.st_size, mtime_ns=status.st_mtime_ns)
        small = status.st_size <= _WHOLE
        digest = hashlib.blake2b(digest_size=16)
        data = b""
        if os.path.isfile(path):  # never a pipe or a device
            with open(path, "rb") as file:
                while block := file.read(_WHOLE + 1):
                    digest.update(block)
                    data = block
        row["hash"] = digest.hexdigest()
        info = inspect_image(data if small and data else path, name=name, decode=decode)
        row.update(width=info.width, height=info.height, format=info.format, mode=info.mode, notes=list(info.notes))
    except ImageError as error:
        row.update(problem=error.kind, detail=error.detail)
    except FileNotFoundError:
        row.update(problem="missing")
    except OSError as error:
        row.update(problem="unreadable", detail=str(error.strerror))
    return row


_EMPTY: dict[str, Any] = {
    "bytes": 0,
    "mtime_ns": 0,
    "hash": "",
    "width": 0,
    "height": 0,
    "format": "",
    "mode": "",
    "problem": "",
    "detail": "",
    "notes": [],
}


def _note(row: dict[str, Any], first: dict[str, str], report: Report) -> None:
    if row["problem"]:
        report.extend([Problem(row["problem"], row["path"], row["detail"])])
        return
    report.extend(Problem(kind, row["path"], f"{row['width']}×{row['height']} {row['mode']}") for kind in row["notes"])
    twin = first.setdefault(row["hash"], row["path"])
    if twin != row["path"]:
        report.add("duplicate-content", row["path"], f"as {twin}")


def _schema(arrow: Any, base: Path, decode: bool) -> Any:
    text, whole, words = arrow.string(), arrow.int64(), arrow.list_(arrow.string())
    types = dict.fromkeys(("path", "hash", "format", "mode", "split", "problem", "detail"), text)
    types |= dict.fromkeys(("bytes", "mtime_ns", "width", "height"), whole)
    types |= dict.fromkeys(("labels", "negatives", "notes"), words)
    metadata = {"onelabel.root": str(base), "onelabel.decoded": str(decode)}
    return arrow.schema(list(types.items()), metadata=metadata)


def _previous(target: Path, decode: bool) -> dict[str, dict[str, Any]]:
    """The rows of an earlier manifest by path; none of them where it cannot be read or looked less closely."""
    if not target.exists():
        return {}
    parquet, arrow = need("pyarrow.parquet", "cli"), need("pyarrow", "cli")
    try:
        table = parquet.read_table(target)
        if decode and (table.schema.metadata or {}).get(b"onelabel.decoded") != b"True":
            return {}
        return {row["path"]: row for row in table.to_pylist()}
    except (OSError, KeyError, arrow.ArrowInvalid):
        return {}
