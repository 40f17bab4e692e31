"""Multi-label ARFF files, dense or sparse, as Mulan and MEKA write them."""

from __future__ import annotations

import csv
import re
import xml.etree.ElementTree as tree_parser
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .report import DataError

_ATTRIBUTE = re.compile(r"""@attribute\s+('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\S+)\s+(.+)$""", re.IGNORECASE)


def read_arff(
    file: Path, labels: Sequence[str] | None = None
) -> tuple[NDArray[np.float32], NDArray[np.int8], tuple[str, ...]]:
    """Features N×D float32, labels N×L int8 and their names.

    Numeric attributes are one column each; nominal ones of two values too, and of more values one column a value.
    Missing values (?) are not a number in features and refused in labels.
    """
    names, values, relation, data = _parse(file)
    chosen = _label_columns(file, names, relation, labels)
    of_labels = data[:, chosen]
    if not np.isin(of_labels, (-1, 0, 1)).all():
        raise DataError(f"{file}: a label is missing or neither 0 nor 1")
    return _features(data, values, chosen), of_labels.astype(np.int8), tuple(names[i] for i in chosen)


def read_arff_features(file: Path, *, without: Collection[str] = ()) -> NDArray[np.float32]:
    """The features alone, of all attributes but those named; what labels the file has may be missing (?)."""
    names, values, _, data = _parse(file)
    return _features(data, values, [i for i, name in enumerate(names) if name in without])


def _parse(file: Path) -> tuple[list[str], list[list[str] | None], str, NDArray[np.float64]]:
    """Attributes, the values of nominal ones, the relation's name, and the cells as numbers."""
    lines = iter(enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1))
    names: list[str] = []
    values: list[list[str] | None] = []  # the nominal values, None for a number
    relation = ""
    for number, line in lines:
        text = line.strip()
        if text.lower().startswith("@relation"):
            relation = text[9:]
        elif text.lower().startswith("@attribute"):
            match = _ATTRIBUTE.match(text)
            if match is None:
                raise DataError(f"{file}:{number}: {text!r}, expected @attribute NAME TYPE")
            kind = match[2].strip()
            names.append(_bare(match[1]))
            nominal = kind.startswith("{")
            values.append([_bare(word) for word in _fields(kind.strip("{} "))] if nominal else None)
            if not nominal and kind.split()[0].lower() not in ("numeric", "real", "integer"):
                raise DataError(f"{file}:{number}: attribute type {kind!r}, expected numeric or nominal")
        elif text.lower().startswith("@data"):
            break
    rows = [_row(file, number, line.strip(), values) for number, line in lines if _is_data(line)]
    return names, values, relation, np.stack(rows) if rows else np.zeros((0, len(names)))


def _features(
    data: NDArray[np.float64], values: list[list[str] | None], labels: Collection[int]
) -> NDArray[np.float32]:
    columns = []
    for column in (i for i in range(len(values)) if i not in set(labels)):
        nominal_values = values[column]
        if nominal_values is not None and len(nominal_values) > 2:
            columns += [
                np.where(np.isnan(data[:, column]), np.nan, data[:, column] == v) for v in range(len(nominal_values))
            ]
        else:
            columns.append(data[:, column])
    X = np.stack(columns, axis=1) if columns else np.zeros((len(data), 0))
    return X.astype(np.float32)


def _label_columns(file: Path, names: list[str], relation: str, labels: Sequence[str] | None) -> list[int]:
    if labels is None and (beside := _list_of_labels(file)) is not None:
        text = beside.read_bytes()
        if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
            raise DataError(f"{beside}: declares entities, which a list of labels does not need")
        try:
            found = [node.get("name", "") for node in tree_parser.fromstring(text).iter() if node.get("name")]
        except tree_parser.ParseError as error:
            raise DataError(f"{beside}: {error}") from None
        labels = [name if name in names else _bare(name) for name in found]  # some lists keep the file's backslashes
    if labels is not None:
        missing = [name for name in labels if name not in names]
        if missing or not labels:
            raise DataError(
                f"{file}: no attribute {missing[0] if missing else ''!r}; it has {', '.join(names[:10])}, …"
            )
        return [names.index(name) for name in labels]
    match = re.search(r"-C\s+(-?\d+)", relation)
    if match is None or not 0 < abs(int(match[1])) <= len(names):
        raise DataError(f"{file}: which attributes are labels? Put the .xml beside it or pass -o labels= (labels=)")
    count = int(match[1])
    return list(range(count)) if count > 0 else list(range(len(names) + count, len(names)))


def _list_of_labels(file: Path) -> Path | None:
    """Mulan's .xml: of the file's own name, or of what it is a part of (yeast.xml beside yeast-train.arff)."""
    stem = file.stem
    while stem:
        if (beside := file.with_name(f"{stem}.xml")).exists():
            return beside
        stem = stem.rpartition("-")[0]
    return None


def _is_data(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("%")


def _row(file: Path, number: int, text: str, values: list[list[str] | None]) -> NDArray[np.float64]:
    row = np.zeros(len(values))
    try:
        if text.startswith("{"):
            for item in _fields(text.strip("{} ")):
                if item.strip():
                    where, _, cell = item.strip().partition(" ")
                    row[int(where)] = _value(cell, values[int(where)])
            return row
        cells = _fields(text)
        if len(cells) != len(values):
            raise ValueError(f"{len(cells)} values, expected {len(values)}")
        for i, cell in enumerate(cells):
            row[i] = _value(cell, values[i])
        return row
    except (ValueError, IndexError) as error:
        raise DataError(f"{file}:{number}: {error}") from None


def _value(cell: str, nominal: list[str] | None) -> float:
    text = _bare(cell)
    if text == "?":
        return float("nan")
    if nominal is None:
        return float(text)
    if text not in nominal:
        raise ValueError(f"{text!r} is none of {', '.join(nominal)}")
    return float(text) if nominal in (["0", "1"], ["1", "0"], ["-1", "1"]) else float(nominal.index(text))


def _fields(text: str) -> list[str]:
    quote = '"' if '"' in text else "'"
    return next(csv.reader([text], quotechar=quote, skipinitialspace=True, escapechar="\\"), [])


def _bare(word: str) -> str:
    word = word.strip()
    if len(word) >= 2 and word[0] == word[-1] and word[0] in "'\"":
        word = word[1:-1]
    return word.replace("\\'", "'").replace('\\"', '"')
