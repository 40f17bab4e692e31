"""Filling the database from recovered labels and audits, batch by batch, in memory that does not grow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, case, delete, func, insert, select, text

from onelabel.review.database import Database
from onelabel.review.models import BINS, DONE, DOUBT, ITEM_INDEXES, MISSING, OPEN, Item, Klass, Meta, Picture, Tally
from onelabel.review.source import Source
from onelabel.system import progress

_COLUMNS = "id row class_index kind probability observed rank bin gain priority state needed conflict loaded"
_ITEM = list(map(str, _COLUMNS.split(" ")))
_UPDATED = ("kind", "probability", "observed", "rank", "bin", "gain", "priority", "loaded")


def get_meta(connection: Connection, key: str) -> Any:
    """A remembered value, or None."""
    found = connection.execute(select(Meta.value).where(Meta.key == key)).scalar()
    return None if found is None else json.loads(found)


def set_meta(db: Database, connection: Connection, key: str, value: Any) -> None:
    statement = db.insert(Meta).values(key=key, value=json.dumps(value, ensure_ascii=False))
    set_ = {"value": statement.excluded.value}
    connection.execute(statement.on_conflict_do_update(index_elements=["key"], set_=set_))


def load_recovered(
    db: Database, source: Source, *, min_probability: float = 0.05, double_share: float = 0.0, quiet: bool = False
) -> int:
    """Make items of the entries worth a question; returns how many. A file that was loaded already is left alone."""
    stamp = f"{source.fingerprint}:{min_probability}:{double_share}"
    with db.read() as connection:
        if get_meta(connection, "recovered") == stamp:
            return 0
        _same_pictures(
            connection,
            source,
            "give a new --db, and this one to --import: its answers go to the pictures they are about",
        )
    with db.write() as connection:
        _set_classes(db, connection, source)
        load = int(get_meta(connection, "loads") or 0) + 1
        set_meta(db, connection, "loads", load)
        empty = connection.execute(select(Item.id).limit(1)).first() is None
        if empty:  # sorting a million keys once is faster than a million insertions
            for index in ITEM_INDEXES:
                index.drop(connection, checkfirst=True)
    kept, classes = 0, len(source.class_names)
    with progress("loading suggestions", source.rows, wanted=not quiet and source.rows >= 200_000) as advance:
        for batch in source.batches():
            columns = _checked(batch, source, classes)
            columns, examples, given = _items(columns, classes, min_probability, double_share, load)
            with db.write() as connection:
                _upsert(connection, "item", _ITEM, [columns[name] for name in _ITEM], "id", _UPDATED)
                _upsert(connection, "picture", _PICTURE, examples, "row", ("example",))
                _upsert(connection, "given", ["row", "class_index"], given, "row, class_index", ())
            kept += len(columns["id"])
            advance(batch.num_rows)
    with db.write() as connection:
        connection.execute(delete(Item).where(Item.loaded < load, Item.state == OPEN, Item.kind.in_([MISSING, DOUBT])))
        for index in ITEM_INDEXES:
            index.create(connection, checkfirst=True)
        rebuild_tallies(connection)
        connection.execute(text("ANALYZE"))
        if source.root is not None:
            set_meta(db, connection, "root", str(source.root))
        set_meta(db, connection, "recovered", stamp)
    return kept


def load_audit(db: Database, source: Source, *, double_share: float = 0.0) -> int:
    """Mark the pictures of an audit; returns how many there are in the file."""
    count = 0
    with db.write() as connection:
        if get_meta(connection, "classes") is None:
            raise ValueError(f"{source.path}: load recovered labels first; they name the classes an audit answers")
        _same_pictures(connection, source, "draw the audit from the recovered labels that are reviewed")
        for batch in source.batches():
            rows = np.asarray(batch.column("row"))
            chance = np.asarray(batch.column("inclusion_probability"))
            _refuse(~((chance > 0) & (chance <= 1)), chance, source.path, "inclusion_probability in (0, 1]")
            needed = 1 + (_uniform(rows) < double_share).astype(np.int64)
            size = len(rows)
            columns = [
                rows.tolist(),
                batch.column("example").to_pylist(),
                [True] * size,
                chance.tolist(),
                batch.column("stratum").to_pylist(),
                [OPEN] * size,
                needed.tolist(),
                [0] * size,
            ]
            names = [*_PICTURE[:3], "inclusion_probability", "stratum", *_PICTURE[3:]]
            _upsert(
                connection, "picture", names, columns, "row", ("example", "audit", "inclusion_probability", "stratum")
            )
            count += size
    return count


def rebuild_tallies(connection: Connection) -> None:
    """Count everything again from the items."""
    hit = case((Item.kind == DOUBT, -Item.observed), else_=1)

    def total(condition: Any) -> Any:
        return func.sum(case((condition, 1), else_=0))

    connection.execute(delete(Tally))
    counted = select(
        Item.kind,
        Item.class_index,
        Item.bin,
        func.count(),
        total(Item.state == DONE),
        total((Item.value != 0) & (Item.value == hit)),
        total((Item.value != 0) & (Item.value != hit)),
        total(Item.value == 0),
        func.sum(case((Item.state != DONE, Item.gain), else_=0.0)),
    ).group_by(Item.kind, Item.class_index, Item.bin)
    names = ["kind", "class_index", "bin", "total", "done", "confirmed", "refuted", "unsure", "gain"]
    connection.execute(insert(Tally).from_select(names, counted))


_PICTURE = ["row", "example", "audit", "state", "needed", "passes"]


def _set_classes(db: Database, connection: Connection, source: Source) -> None:
    known = get_meta(connection, "classes")
    if known is not None and known != source.class_names:
        raise ValueError(f"{source.path} has other classes than the database was made with; use another --db")
    if known is None:
        set_meta(db, connection, "classes", source.class_names)
        rows = [{"class_index": i, "name": name} for i, name in enumerate(source.class_names)]
        connection.execute(insert(Klass), rows)


def _same_pictures(connection: Connection, source: Source, remedy: str) -> None:
    """Answers belong to rows: a file in which a row is another picture than here is refused."""
    if connection.execute(select(Picture.row).limit(1)).first() is None:
        return
    for batch in source.batches():
        rows = np.asarray(batch.column("row"))
        span = Picture.row.between(int(rows.min()), int(rows.max())) if len(rows) else Picture.row < 0
        known = dict(iter(connection.execute(select(Picture.row, Picture.example).where(span))))
        for row, name in zip(rows.tolist(), batch.column("example").to_pylist(), strict=True):
            if known.get(row, name) not in (name, f"#{row}"):
                raise ValueError(f"{source.path}: row {row} is {name}, in the database {known[row]}; {remedy}")


def _refuse(bad: NDArray[np.bool_], values: NDArray[Any], path: Path, expected: str) -> None:
    if bad.any():
        raise ValueError(f"{path} must have {expected}; got {values[int(np.argmax(bad))]}")


def _checked(batch: Any, source: Source, classes: int) -> dict[str, Any]:
    if any(column.null_count for column in batch.columns):
        raise ValueError(f"{source.path} must have no empty cells")
    columns = {name: np.asarray(batch.column(name)) for name in ("row", "class_index", "observed", "rank")}
    columns["probability"] = np.asarray(batch.column("probability")).astype(np.float64)
    p, at = columns["probability"], columns["class_index"]
    _refuse(~((p >= 0) & (p <= 1)), p, source.path, "probability in [0, 1]")
    _refuse((at < 0) | (at >= classes), at, source.path, f"class_index in [0, {classes - 1}]")
    _refuse(np.abs(columns["observed"]) > 1, columns["observed"], source.path, "observed in −1, 0, +1")
    _refuse(columns["row"] < 0, columns["row"], source.path, "row ≥ 0")
    columns["example"] = batch.column("example")
    return columns


def _items(
    c: dict[str, Any], classes: int, min_probability: float, share: float, load: int
) -> tuple[dict[str, list[Any]], list[list[Any]], list[list[Any]]]:
    """Columns of the items to keep, of all pictures, and of the given labels."""
    p, observed = c["probability"], c["observed"]
    missing = (observed == 0) & (p >= min_probability)
    doubt = ((observed > 0) & (p < 0.5)) | ((observed < 0) & (p > 0.5))
    keep = np.flatnonzero(missing | doubt)
    row, at, p, seen = c["row"][keep], c["class_index"][keep], p[keep], observed[keep]
    key = row * classes + at
    gain = np.where(seen > 0, 1.0 - p, p)
    size = len(keep)
    arrays = {
        "id": key,
        "row": row,
        "class_index": at,
        "kind": np.where(seen == 0, MISSING, DOUBT),
        "probability": p,
        "observed": seen,
        "rank": c["rank"][keep],
        "bin": np.minimum((p * BINS).astype(np.int64), BINS - 1),
        "gain": gain,
        "priority": gain,
        "state": np.full(size, OPEN),
        "needed": 1 + (_uniform(key) < share).astype(np.int64),
        "loaded": np.full(size, load),
    }
    columns: dict[str, list[Any]] = {name: array.tolist() for name, array in arrays.items()}
    columns["conflict"] = [False] * size
    rows, first = np.unique(c["row"], return_index=True)
    examples = c["example"].take(first).to_pylist()
    count = len(rows)
    pictures = [rows.tolist(), examples, [False] * count, [OPEN] * count, [1] * count, [0] * count]
    positive = observed > 0
    return columns, pictures, [c["row"][positive].tolist(), c["class_index"][positive].tolist()]


def _uniform(keys: NDArray[np.int64]) -> NDArray[np.float64]:
    """A fixed number in [0, 1) for each key (SplitMix64), so that a reload chooses the same double reviews."""
    z = keys.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) / float(1 << 53)


def _upsert(
    connection: Connection, table: str, names: list[str], columns: list[list[Any]], key: str, updated: tuple[str, ...]
) -> None:
    """Many rows at once: COPY and one INSERT on PostgreSQL, executemany on SQLite."""
    rows = list(zip(*columns, strict=True))
    if not rows:
        return
    listed = ", ".join(names)
    sets = ", ".join(f"{name} = excluded.{name}" for name in updated)
    conflict = f"ON CONFLICT ({key}) DO " + (f"UPDATE SET {sets}" if updated else "NOTHING")
    if connection.dialect.name == "sqlite":
        marks = ", ".join("?" * len(names))
        connection.exec_driver_sql(f"INSERT INTO {table} ({listed}) VALUES ({marks}) {conflict}", rows)
        return
    connection.exec_driver_sql(f"CREATE TEMP TABLE incoming ON COMMIT DROP AS SELECT {listed} FROM {table} LIMIT 0")
    driver: Any = connection.connection.driver_connection
    with driver.cursor() as cursor, cursor.copy(f"COPY incoming ({listed}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)
    # DISTINCT: one statement may not meet a key twice
    chosen = f"SELECT DISTINCT ON ({key}) {listed} FROM incoming"
    connection.exec_driver_sql(f"INSERT INTO {table} ({listed}) {chosen} {conflict}")
    connection.exec_driver_sql("DROP TABLE incoming")
