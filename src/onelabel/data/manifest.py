"""A manifest: one Parquet row per picture with its path, size, hash and labels, built once and then kept up to date."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from onelabel.system import atomic_file, need, progress

from .folders import scan_folder
from .images import ImageError, inspect_image
from .own import Records
from .pool import process_map
from .report import Report
from .tables import read_records

_CHUNK = 512  # pictures a worker looks at before it answers
_GROUP = 32  # chunks written at a time
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
    parquet, arrow = need("pyarrow.parquet", "cli"), need("pyarrow", "cli")
    schema = _schema(arrow, base.resolve(), decode)
    before = _previous(target, schema, decode)
    reused = 0
    first: dict[bytes, int] = {}
    with (
        progress(f"manifest of {where.name}", len(records)) as advance,
        atomic_file(target) as file,
        parquet.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        group: list[Any] = []
        for rows, old, table in _tables(records, base, before, schema, decode, workers):
            reused += old
            _note(table, rows, first, records, report)
            group.append(table)
            advance(len(rows))
            if len(group) == _GROUP:
                writer.write_table(arrow.concat_tables(group))
                group = []
        if group:
            writer.write_table(arrow.concat_tables(group))
    report.settle_dim()
    return Manifest(target, len(records), reused, report)


def _tables(
    records: Records, base: Path, before: Any, schema: Any, decode: bool, workers: int | None
) -> Iterator[tuple[range, int, Any]]:
    """Rows, how many of them are old, and their table, chunk by chunk: old rows where nothing changed.

    Everything but the paths stays in Arrow's columns; as Python objects, a million rows would be gigabytes.
    """
    arrow = need("pyarrow", "cli")
    place = {name: row for row, name in enumerate(before["path"].to_pylist())}
    size, time = (before[name].to_numpy() for name in ("bytes", "mtime_ns"))
    chunks = [range(start, min(start + _CHUNK, len(records))) for start in range(0, len(records), _CHUNK)]

    def work() -> Iterator[tuple[list[str], list[tuple[int, int] | None]]]:
        for rows in chunks:
            names = records.names[rows.start : rows.stop]
            found = [place.get(name) for name in names]
            yield names, [None if at is None else (int(size[at]), int(time[at])) for at in found]

    count = 1 if len(chunks) < 3 and not decode else workers
    looked = process_map(partial(_look, str(base), decode), work(), workers=count)
    for rows, answers in zip(chunks, looked, strict=True):
        names = records.names[rows.start : rows.stop]
        kept = [place[name] for name, answer in zip(names, answers, strict=True) if answer is None]
        fresh = [{**answer, "path": name} for name, answer in zip(names, answers, strict=True) if answer is not None]
        table = arrow.concat_tables(
            [before.take(arrow.array(kept, arrow.int64())), arrow.Table.from_pylist(fresh, schema)]
        )
        order, old, new = [], 0, len(kept)
        for answer in answers:
            order.append(old if answer is None else new)
            old, new = old + (answer is None), new + (answer is not None)
        table = table.take(arrow.array(order, arrow.int64()))
        labels = {
            "labels": [list(labels) for labels in records.positives[rows.start : rows.stop]],
            "negatives": [list(labels) for labels in records.negatives[rows.start : rows.stop]],
            "split": [part or "" for part in records.parts[rows.start : rows.stop]],
        }
        for name, values in labels.items():
            index = schema.get_field_index(name)
            table = table.set_column(index, schema.field(index), arrow.array(values, schema.field(index).type))
        yield rows, len(kept), table.cast(schema)


def _look(base: str, decode: bool, work: tuple[list[str], list[tuple[int, int] | None]]) -> list[dict[str, Any] | None]:
    return [_examine(base, name, known, decode) for name, known in zip(*work, strict=True)]


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


#: What `_note` reads of every row.
NOTED = ("path", "problem", "detail", "notes", "hash", "width", "height", "mode")


def _note(table: Any, rows: range, first: dict[bytes, int], records: Records, report: Report) -> None:
    """Problems, notes and repeated contents of a chunk into the report."""
    for row, values in zip(rows, zip(*(table[name].to_pylist() for name in NOTED), strict=True), strict=True):
        path, problem, detail, notes, digest, width, height, mode = values
        if problem:
            report.add(problem, path, detail)
            continue
        for kind in notes:
            report.add(kind, path, f"{width}×{height} {mode}")
        twin = first.setdefault(bytes.fromhex(digest), row)
        if twin != row:
            report.add("duplicate-content", path, f"as {records.names[twin]}")


def _schema(arrow: Any, base: Path, decode: bool) -> Any:
    text, whole, words = arrow.string(), arrow.int64(), arrow.list_(arrow.string())
    types = dict.fromkeys(("path", "hash", "format", "mode", "split", "problem", "detail"), text)
    types |= dict.fromkeys(("bytes", "mtime_ns", "width", "height"), whole)
    types |= dict.fromkeys(("labels", "negatives", "notes"), words)
    metadata = {"onelabel.root": str(base), "onelabel.decoded": str(decode)}
    return arrow.schema(list(types.items()), metadata=metadata)


def _previous(target: Path, schema: Any, decode: bool) -> Any:
    """An earlier manifest's table; an empty one where there is none, or it cannot be read or looked less closely."""
    parquet, arrow = need("pyarrow.parquet", "cli"), need("pyarrow", "cli")
    if target.exists():
        try:
            table = parquet.read_table(target)
            if not decode or (table.schema.metadata or {}).get(b"onelabel.decoded") == b"True":
                table = table.select(schema.names).cast(schema).combine_chunks()
                hexadecimal = need("pyarrow.compute", "cli").match_substring_regex(table["hash"], "^([0-9a-f]{2})*$")
                if all(hexadecimal.to_pylist()) and not any(table[name].null_count for name in NOTED):
                    return table
        except (OSError, KeyError, ValueError, arrow.ArrowException):
            pass
    return schema.empty_table()
