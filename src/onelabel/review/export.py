"""Answers as observed labels: out to arrays and Parquet, and earlier decisions back in."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, func, select
from sqlalchemy.exc import DatabaseError

from onelabel.recovery.places import rows_by_name
from onelabel.review.database import Database
from onelabel.review.load import get_meta
from onelabel.review.models import DECIDED, Answer, Item, Klass, Picture, Reviewer
from onelabel.review.source import _arrow, write_table
from onelabel.system import check_schema, reading

ANSWERS, VERSION = "onelabel.answers", 1
_COLUMNS = {
    "row": "int64",
    "example": "string",
    "class": "string",
    "class_index": "int32",
    "value": "int8",
    "reviewers": "int32",
    "audit": "bool",
    "inclusion_probability": "double",
    "stratum": "string",
}


Entries = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int8]]


class Answers(NamedTuple):
    """Settled answers, for ``Labels.with_updates(rows, cols, values)``; `meta` names the classes.

    `rows` are those of the recovered labels; `examples` are the same pictures' names, where they are known.
    """

    rows: NDArray[np.int64]
    cols: NDArray[np.int64]
    values: NDArray[np.int8]
    meta: dict[str, Any]
    examples: Sequence[str] | None = None


def export_labels(db: Database | str | os.PathLike[str]) -> Entries:
    """Rows, columns and ±1 values of everything settled as yes or no."""
    answers = load_answers(db)
    return answers.rows, answers.cols, answers.values


def load_answers(db_or_path: Database | str | os.PathLike[str]) -> Answers:
    """Answers from a review database (file or URL) or from a Parquet file that was exported."""
    if isinstance(db_or_path, Database):
        return _from_database(db_or_path)
    if str(db_or_path).endswith(".parquet"):
        return _from_file(Path(db_or_path))
    db = Database(db_or_path, create=False)
    try:
        return _from_database(db)
    except DatabaseError as error:  # damaged further in than opening it looks
        raise db.refusal(error) from error
    finally:
        db.close()


def _from_database(db: Database) -> Answers:
    with db.read() as connection:
        columns = (Item.row, Item.class_index, Item.value, Picture.example)
        query = select(*columns).join(Picture, Picture.row == Item.row).where(DECIDED).order_by(Item.id)
        parts = [tuple(zip(*part, strict=True)) for part in connection.execute(query).partitions(65_536)]
        found = [np.concatenate([np.asarray(part[i], np.int64) for part in parts]) for i in range(3)] if parts else []
        rows, cols, values = found or [np.zeros(0, np.int64)] * 3
        examples = [name for part in parts for name in part[3]]
        return Answers(rows, cols, values.astype(np.int8), _meta(connection), examples)


def _meta(connection: Connection) -> dict[str, Any]:
    count = connection.execute(select(func.count()).select_from(Answer)).scalar_one()
    names = get_meta(connection, "classes")
    return {"schema_version": VERSION, "class_names": names, "answers": count, "at": time.time()}


def _from_file(path: Path) -> Answers:
    pa, parquet = _arrow()
    with reading(path, "answers exported by onelabel review"):
        table = parquet.read_table(path)
        header = (table.schema.metadata or {}).get(ANSWERS.encode())
        if header is None or not set(_COLUMNS) <= set(table.schema.names):
            raise ValueError(f"it has no header {ANSWERS!r}")
        meta = json.loads(header)
        check_schema(meta["schema_version"], VERSION, path)
        if not isinstance(meta.get("class_names"), list | None):
            raise ValueError("class_names is no list")
        columns = [table.column(name).cast(pa.int64()) for name in ("row", "class_index", "value")]
        if any(column.null_count for column in columns):
            raise ValueError("values are missing")
        rows, cols, values = (column.to_numpy() for column in columns)
        if not (np.isin(values, (-1, 0, 1)).all() and (rows >= 0).all() and (cols >= 0).all()):
            raise ValueError("a row or class below 0, or a value other than 1, 0 and −1")
        examples = [str(name) for name in table.column("example").to_pylist()]
    return Answers(rows, cols, values.astype(np.int8), meta, examples)


def export_file(db: Database, path: str | os.PathLike[str]) -> int:
    """Write the settled answers to Parquet, with the columns an audit's estimates need; returns how many."""
    with db.read() as connection:
        people = select(Answer.item_id, func.count().label("people")).group_by(Answer.item_id).subquery()
        query = (
            select(
                Item.row,
                Picture.example,
                Klass.name,
                Item.class_index,
                Item.value,
                people.c.people,
                Picture.audit,
                Picture.inclusion_probability,
                Picture.stratum,
            )
            .join(Picture, Picture.row == Item.row)
            .join(Klass, Klass.class_index == Item.class_index)
            .join(people, people.c.item_id == Item.id)
            .where(DECIDED)
            .order_by(Item.id)
        )
        rows = [tuple(row) for row in connection.execute(query)]
        columns = {name: [row[i] for row in rows] for i, name in enumerate(_COLUMNS)}
        meta = _meta(connection)
    write_table(path, columns, _COLUMNS, (ANSWERS, meta))
    return len(rows)


def import_answers(db: Database, answers: Answers, *, reviewer: str = "import") -> dict[str, int]:
    """Earlier decisions as the answers of `reviewer`; what is settled here already stays as it is.

    An answer goes to the picture of its name, whatever row that has here; where no names are known, to its row. Entries
    that are no longer suggested are kept as items, so that the labels of all rounds come out together.
    Returns how many were stored, how many were settled already, how many are about pictures that are not here, and of
    how many.
    """
    from onelabel.review.answers import record
    from onelabel.review.change import Said
    from onelabel.review.queue import Who, ensure_items

    with db.read() as connection:
        names = get_meta(connection, "classes")
    if answers.meta.get("class_names") != names:
        raise ValueError("answers have other classes than the database; they cannot be imported into it")
    where = _rows_here(db, answers)
    who = Who(find_reviewer(db, reviewer), "import")
    stored = total = 0
    for start in range(0, len(where), 500):
        part = slice(start, start + 500)
        keep = (answers.values[part] != 0) & (where[part] >= 0)
        rows, cols = where[part][keep], answers.cols[part][keep]
        keys = (rows * len(names) + cols).tolist()
        with db.write() as connection:
            ensure_items(db, connection, rows.tolist(), cols.tolist(), len(names))
        signs = answers.values[part][keep].tolist()
        said = [Said(key, "yes" if sign > 0 else "no") for key, sign in zip(keys, signs, strict=True)]
        body = record(db, who, f"import-{time.time_ns()}-{start}", said, trusted=True)
        stored += sum(result["status"] == "stored" for result in body["results"])
        total += len(said)
    elsewhere = int(((answers.values != 0) & (where < 0)).sum())
    return {"stored": stored, "settled": total - stored, "elsewhere": elsewhere, "total": total + elsewhere}


def _rows_here(db: Database, answers: Answers) -> NDArray[np.int64]:
    if answers.examples is None:
        return np.asarray(answers.rows, np.int64)
    with db.read() as connection:
        there = [(row, name) for row, name in connection.execute(select(Picture.row, Picture.example))]
    rows = rows_by_name(answers.rows, answers.examples, there)
    if len(rows) and (rows < 0).all():
        raise ValueError("no earlier answer is about a picture of these recovered labels; give those of the same data")
    return rows


def find_reviewer(db: Database, name: str) -> int:
    """The number of a reviewer, who is entered when new."""
    with db.write() as connection:
        new = db.insert(Reviewer).values(name=name, created_at=time.time()).on_conflict_do_nothing()
        connection.execute(new)
        return connection.execute(select(Reviewer.id).where(Reviewer.name == name)).scalar_one()
