"""CSV, TSV, Parquet and JSON lines of path and label."""

from __future__ import annotations

import csv as csv_reader
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onelabel.system import need, reading

from .base import Draw, Splits
from .cells import divided, labels_of, mention_undivided
from .images import SUFFIXES
from .own import Complete, Records, merge_duplicates, own_splits, part_said
from .paths import native
from .report import KINDS, DataError, Report
from .sources import FileSource
from .verify import Verify

PATH_COLUMNS = ("path", "image", "image_path", "file", "filename", "file_name", "filepath", "img")
LABEL_COLUMNS = ("label", "labels", "class", "classes", "category", "positive", "positives", "tags")
NEGATIVE_COLUMNS = ("negative", "negatives", "absent", "not")
PART_COLUMNS = ("split", "part", "subset")
OTHER_COLUMNS = ("bytes", "mtime_ns", "hash", "width", "height", "format", "mode", "problem", "detail")


def load_table(
    path: str | Path,
    *,
    root: str | Path | None = None,
    image: str | None = None,
    labels: str | Sequence[str] | None = None,
    negatives: str | Sequence[str] | None = None,
    split: str | None = None,
    separator: str = "|",
    delimiter: str | None = None,
    encoding: str = "utf-8",
    class_names: Sequence[str] | str | Path | None = None,
    complete: Complete = False,
    verify: Verify = "header",
    draw: Draw | None = None,
    report: Report | None = None,
) -> Splits[Any]:
    """A table with a row per picture: its path, its positives, and perhaps its negatives and its part.

    A cell may hold several labels, as a list (Parquet, JSON lines) or divided by `separator`. Without any label
    column, columns of 1, 0 and −1 are taken as one class each. A path that is listed twice is one picture with both
    rows' labels. A manifest (see `build_manifest`) is such a table, and brings the hashes of its files.

    Args:
        root: the folder that paths are relative to; the table's own folder unless given.
        image, labels, negatives, split: the columns; found by their usual names unless given.
        separator: what divides the labels of a cell; "" where a cell is one label.
        delimiter: what divides a line of text; a comma, semicolon or tab is found by the header unless given.
        complete: every label that a row lacks is absent; its labels then count as clean;
            'held-out': of validation and test rows alone.
    """
    file = Path(path).expanduser()
    report = report if report is not None else Report()
    table = read_records(
        file,
        report,
        root=root,
        image=image,
        labels=labels,
        negatives=negatives,
        split=split,
        separator=separator,
        delimiter=delimiter,
        encoding=encoding,
    )
    return own_splits(
        file.stem,
        FileSource(table.root, table.records.names, hashes=table.hashes),
        table.records,
        class_names=class_names if class_names is not None else table.class_names,
        complete=complete,
        draw=draw or Draw(),
        report=report,
        verify=verify,
        notes=(f"table {file.name}", *([table.divided] if table.divided else [])),
    )


@dataclass(frozen=True)
class Table:
    """A table's records, the folder their paths are relative to, and what a manifest adds."""

    records: Records
    root: Path
    hashes: list[str] | None
    class_names: list[str] | None  # of a table with a column per class
    divided: str = ""  # in words, how many cells hold several labels


def read_records(
    file: Path,
    report: Report,
    *,
    root: str | Path | None = None,
    image: str | None = None,
    labels: str | Sequence[str] | None = None,
    negatives: str | Sequence[str] | None = None,
    split: str | None = None,
    separator: str = "|",
    delimiter: str | None = None,
    encoding: str = "utf-8",
) -> Table:
    """Read a table's rows; see `load_table`."""
    columns, metadata = read_columns(file, report, encoding=encoding, delimiter=delimiter, image=image)
    where = image or _find(columns, PATH_COLUMNS)
    if where is None or where not in columns:
        remedy = "pass -o image=COLUMN (image=), or -o delimiter= (delimiter=) where these are several"
        if any(os.path.splitext(column)[1].lower() in SUFFIXES for column in columns):
            remedy = "its first line should name the columns, such as path,label"
        raise DataError(f"{file}: no column {image or 'of paths'}; it has {', '.join(columns)}; {remedy}")
    positive, negative = _chosen(columns, labels, LABEL_COLUMNS), _chosen(columns, negatives, NEGATIVE_COLUMNS)
    part = split or _find(columns, PART_COLUMNS)
    asked = [name for name in (*positive, *negative, *([part] if part else [])) if name not in columns]
    if asked:
        raise DataError(f"{file}: no column {asked[0]!r}; it has {', '.join(columns)}")
    wide = [] if positive else _wide(columns, {where, part, *negative, *OTHER_COLUMNS})
    if not positive and not wide:
        raise DataError(f"{file}: no label column among {', '.join(columns)}; pass -o labels=COLUMN (labels=)")
    base = Path(root).expanduser() if root is not None else Path(metadata.get("onelabel.root", file.parent))
    records = Records()
    hashes: dict[str, str] = {}
    skipped = columns.get("problem", [""] * len(columns[where]))
    for row, name in enumerate(columns[where]):
        if not isinstance(name, str) or not name:
            report.add("malformed", f"{file.name}: row {row + 1}", "no path")
            continue
        if skipped[row] in KINDS and KINDS[skipped[row]][0]:
            report.add(skipped[row], name, "according to the manifest")
            continue
        found = [label for column in positive for label in labels_of(columns[column][row], separator)]
        against = [label for column in negative for label in labels_of(columns[column][row], separator)]
        for column in wide:
            value = _sign(columns[column][row])
            (found if value > 0 else against).extend([column] if value else [])
        name = native(name, base)
        said = part_said(columns[part][row], f"{file.name}: row {row + 1}, column {part}") if part else None
        records.add(name, found, against, said)
        if "hash" in columns:
            hashes[name] = str(columns["hash"][row])
    records = merge_duplicates(records, report)
    cells = [cell for column in (*positive, *negative) for cell in columns[column]]
    mention_undivided(cells, separator, report)
    listed = [hashes[name] for name in records.names] if hashes else None
    return Table(records, base, listed, wide or None, divided(cells, separator))


def read_columns(
    file: Path, report: Report, *, encoding: str = "utf-8", delimiter: str | None = None, image: str | None = None
) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """A table's columns as lists, and its Parquet metadata; lines that do not parse are reported."""
    suffix = file.suffix.lower()
    try:
        with reading(file, "a table", kind=DataError):
            if suffix in (".jsonl", ".ndjson"):
                return _json_lines(file, report, encoding), {}
            if suffix == ".parquet":
                table = need("pyarrow.parquet", "cli").read_table(file)
                metadata = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
                return {name: table[name].to_pylist() for name in table.column_names}, metadata
            return _delimited(file, report, encoding, delimiter, image), {}
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}") from None
    except DataError as error:
        if isinstance(cause := error.__cause__, UnicodeDecodeError):
            remedy = "pass -o encoding= (encoding=), such as latin-1 or utf-16"
            raise DataError(f"{file}: not {encoding} at byte {cause.start}; {remedy}") from None
        raise


def _delimiter(file: Path, header: str, given: str | None, image: str | None) -> str:
    """What divides a line: as given, else what makes a column of paths of the header, else the most columns."""
    if given is not None:
        found = "\t" if given in ("tab", r"\t") else given
        if not isinstance(found, str) or len(found) != 1 or found in '\r\n"':
            raise DataError(f"delimiter: {given!r}, expected one character, or tab")
        return found
    paths = {image} if image else {*PATH_COLUMNS}

    def fits(delimiter: str) -> tuple[bool, int]:
        names = [name.strip() for name in next(csv_reader.reader([header], delimiter=delimiter), [])]
        return bool(paths & {*names, *map(str.lower, names)}), len(names)

    usual = ("\t", ",", ";") if file.suffix.lower() == ".tsv" else (",", ";", "\t")
    return max(usual, key=fits)


def _delimited(
    file: Path, report: Report, encoding: str, delimiter: str | None, image: str | None
) -> dict[str, list[Any]]:
    with open(file, encoding=_marked(encoding), newline="") as stream:
        delimiter = _delimiter(file, stream.readline(), delimiter, image)
        stream.seek(0)
        reader = csv_reader.reader(stream, delimiter=delimiter)
        header = [name.strip() for name in next(reader, [])]
        if not header:
            raise DataError(f"{file}: empty; expected a header line with the columns' names")
        if len(set(header)) != len(header):
            raise DataError(f"{file}: two columns have the same name: {', '.join(header)}")
        rows = []
        try:
            for row in reader:
                if len(row) == len(header):
                    rows.append(row)
                elif row:
                    remedy = f': quote a cell that has {delimiter!r} in it, as "a{delimiter} b"'
                    detail = f"{len(row)} fields, expected {len(header)}{remedy if len(row) > len(header) else ''}"
                    report.add("malformed", f"{file.name}:{reader.line_num}", detail)
        except csv_reader.Error as error:
            raise DataError(f"{file}:{reader.line_num}: {error}") from None
    values = zip(*rows, strict=True) if rows else ([] for _ in header)
    return {name: list(column) for name, column in zip(header, values, strict=True)}


def _marked(encoding: str) -> str:
    """UTF-8 with or without the mark that some programs begin it with."""
    return "utf-8-sig" if encoding.lower().replace("_", "-") in ("utf-8", "utf8") else encoding


def _json_lines(file: Path, report: Report, encoding: str) -> dict[str, list[Any]]:
    rows: list[dict[str, Any]] = []
    with open(file, encoding=_marked(encoding)) as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                if not isinstance(record, dict):
                    raise ValueError("not an object")
            except (ValueError, RecursionError) as error:
                report.add("malformed", f"{file.name}:{number}", error)
                continue
            rows.append(record)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _find(columns: dict[str, list[Any]], usual: Sequence[str]) -> str | None:
    by_lower = {name.lower(): name for name in columns}
    return next((by_lower[name] for name in usual if name in by_lower), None)


def _chosen(columns: dict[str, list[Any]], given: str | Sequence[str] | None, usual: Sequence[str]) -> list[str]:
    if given is not None:
        return [given] if isinstance(given, str) else list(given)
    found = _find(columns, usual)
    return [] if found is None else [found]


def _wide(columns: dict[str, list[Any]], others: set[str | None]) -> list[str]:
    """Columns that hold only 1, 0, −1 or nothing, and not nothing alone."""
    blank, allowed = {"", "None"}, {"1", "0", "-1", "1.0", "0.0", "-1.0", "True", "False"}
    rest = {name: {str(value).strip() for value in columns[name]} for name in columns if name not in others}
    return [name for name, found in rest.items() if found <= blank | allowed and found & allowed]


def _sign(value: Any) -> int:
    text = str(value).strip()
    return {"1": 1, "1.0": 1, "True": 1, "-1": -1, "-1.0": -1}.get(text, 0)
