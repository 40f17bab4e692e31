"""Answers of an audit, read from files and matched with the pictures of its plan."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onelabel.recovery.places import rows_by_name
from onelabel.recovery.summary import counted
from onelabel.recovery.table import arrow
from onelabel.system import reading


@dataclass(frozen=True)
class Answers:
    """`values`: planned rows × classes in {+1, −1, 0 unanswered}; `elsewhere`: answers of pictures not planned."""

    values: NDArray[np.int8]
    elsewhere: int

    def notes(self) -> list[str]:
        """What does not match, in words."""
        planned, open_ = len(self.values), int((self.values == 0).all(1).sum())
        said = []
        if open_:
            has = "has" if open_ == 1 else "have"
            said.append(f"{open_:,} of {counted(planned, 'planned picture', 'planned pictures')} {has} no answer")
        if self.elsewhere:
            what = counted(self.elsewhere, "answer is of a picture that is", "answers are of pictures that are")
            said.append(f"{what} not in this plan")
        return said


def match_answers(
    path: str | os.PathLike[str], rows: NDArray[np.int64], examples: Sequence[str], class_names: Sequence[str]
) -> Answers:
    """`read_file`, where one answer at least is of the plan."""
    found = read_file(path, rows, examples, class_names)
    if found.elsewhere and not found.values.any():
        raise ValueError(f"{path}: {found.notes()[-1]}, and no other is there; give the plan that was answered")
    return found


def read_file(
    path: str | os.PathLike[str], rows: NDArray[np.int64], examples: Sequence[str], class_names: Sequence[str]
) -> Answers:
    """Answers to a plan's `rows` and `examples` from a file as `read_answers` describes it."""
    file = Path(path)
    if not file.exists():
        export = f"`onelabel review RECOVERED --export {file.with_suffix('.parquet')}`"
        raise FileNotFoundError(
            f"{file}: no answers there; `onelabel review RECOVERED --audit PLAN` asks for them, then {export} writes "
            "them; or give a CSV of row,labels"
        )
    read = _exported if file.suffix == ".parquet" else _typed
    return read(file, rows, examples, class_names)


def _exported(file: Path, rows: NDArray[np.int64], examples: Sequence[str], class_names: Sequence[str]) -> Answers:
    """What `onelabel review --export` writes."""
    pa, parquet = arrow()
    with reading(file, "answers exported by onelabel review"):
        table = parquet.read_table(file)
    lacking = {"row", "class_index", "value"} - set(table.schema.names)
    if lacking:
        raise ValueError(f"{file}: no column {sorted(lacking)[0]!r}; expected answers exported by onelabel review")
    out, elsewhere = np.zeros((len(rows), len(class_names)), np.int8), 0
    place = {int(row): i for i, row in enumerate(rows)}
    with reading(file, "answers exported by onelabel review"):
        at, classes, values = (table.column(n).cast(pa.int64()).to_pylist() for n in ("row", "class_index", "value"))
        for row, cls, value in zip(at, classes, values, strict=True):
            if row is None or cls not in range(len(class_names)) or value not in (1, -1, 0):
                raise ValueError(f"row {row}, class {cls}, value {value}")
        if "example" in table.schema.names:
            names = [str(name) for name in table.column("example").to_pylist()]
            at = rows_by_name(at, names, zip(rows.tolist(), examples, strict=True)).tolist()
        for row, cls, value in zip(at, classes, values, strict=True):
            if row in place:
                out[place[row], cls] = value
            else:
                elsewhere += value != 0
    return Answers(out, elsewhere)


def _typed(file: Path, rows: NDArray[np.int64], examples: Sequence[str], class_names: Sequence[str]) -> Answers:
    """A CSV."""
    out, elsewhere = np.zeros((len(rows), len(class_names)), np.int8), 0
    place = {int(row): i for i, row in enumerate(rows)}
    position = {name: i for i, name in enumerate(class_names)}
    by_name = {name: i for i, name in enumerate(examples)}
    with reading(file, "a CSV of answers"), open(file, encoding="utf-8-sig", newline="") as stream:
        for number, line in enumerate(csv.DictReader(stream), 2):
            name = line.get("example") or ""
            at = place.get(int(line["row"])) if line.get("row") else None
            if name and (at is None or examples[at] != name):  # the number may be of another file
                at = by_name.get(name)
            if at is None:
                elsewhere += 1
            elif line.get("labels") is not None:
                out[at] = -1
                for label in _words(line["labels"], position):
                    out[at, _position(position, label, file, number)] = 1
            else:
                said = (line.get("value") or "").strip()
                if said not in ("1", "-1", "0", "+1"):
                    raise ValueError(f"{file}:{number}: value {said!r}, expected 1 or -1")
                out[at, _position(position, line.get("class") or "", file, number)] = int(said)
    return Answers(out, elsewhere)


def _words(cell: str, known: dict[str, int]) -> list[str]:
    """The labels of a cell, divided by |: as they stand where that is a class, even the whole cell, else trimmed."""
    if cell in known:
        return [cell]
    words = [word if word in known else word.strip() for word in cell.split("|")]
    return [word for word in words if word]


def _position(position: dict[str, int], name: str, file: Path, line: int) -> int:
    if name not in position:
        raise ValueError(f"{file}:{line}: class {name!r} is not one of the {len(position)} classes")
    return position[name]
