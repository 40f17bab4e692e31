"""What loading makes of recovered labels, in both databases."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from sqlalchemy import select

from onelabel.review import read_audit, read_recovered, write_audit, write_recovered
from onelabel.review.answers import record
from onelabel.review.change import Said
from onelabel.review.database import Database
from onelabel.review.export import find_reviewer, import_answers, load_answers
from onelabel.review.load import load_audit, load_recovered, rebuild_tallies
from onelabel.review.models import AUDIT, DOUBT, MISSING, Item, Picture, Tally
from onelabel.review.queue import Filters, Who, lease_items


def write(path: Path, rows: Any, cols: Any, p: Any, observed: Any, names: list[str]) -> Path:
    columns = {"row": rows, "example": [f"{r}.jpg" for r in rows], "class_index": cols, "probability": p}
    columns |= {"observed": observed, "rank": np.arange(len(rows))}
    write_recovered(path, columns, root=".", class_names=names)
    return path


def tallies(db: Database) -> list[tuple[Any, ...]]:
    with db.read() as connection:
        found = connection.execute(select(Tally).order_by(Tally.kind, Tally.class_index, Tally.bin))
        return [(*row[:-1], round(row.gain, 6)) for row in found if row.total or row.done]


def test_items_are_the_entries_worth_a_question(db_url: str, tmp_path: Path) -> None:
    rows, cols = [0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1]
    p, observed = [0.9, 0.01, 0.2, 0.7, 0.8, 0.3], [0, 0, 1, 1, -1, 0]
    db = Database(db_url)
    kept = load_recovered(db, read_recovered(write(tmp_path / "r.parquet", rows, cols, p, observed, ["a", "b"])))
    with db.read() as connection:
        found = {r.id: (r.kind, round(r.gain, 4)) for r in connection.execute(select(Item))}
    # 0: missing; 1: too unlikely; 2: given but unlikely; 3: given and likely; 4: given negative but likely; 5: missing
    assert kept == 4
    assert found == {0: (MISSING, 0.9), 2: (DOUBT, 0.8), 4: (DOUBT, 0.8), 5: (MISSING, 0.3)}
    db.close()


def test_the_next_round_keeps_answers_and_drops_what_is_no_longer_suggested(db_url: str, tmp_path: Path) -> None:
    db = Database(db_url)
    first = write(tmp_path / "1.parquet", [0, 1, 2], [0, 0, 0], [0.9, 0.8, 0.7], [0, 0, 0], ["a"])
    load_recovered(db, read_recovered(first))
    who = Who(find_reviewer(db, "ann"), "t")
    record(db, who, "r1", [Said(0, "yes")])
    second = write(tmp_path / "2.parquet", [1, 3], [0, 0], [0.6, 0.5], [0, 0], ["a"])
    load_recovered(db, read_recovered(second))
    with db.read() as connection:
        kept = {r.id: (r.state, round(r.probability, 3)) for r in connection.execute(select(Item))}
    assert kept == {0: (2, 0.9), 1: (0, 0.6), 3: (0, 0.5)}
    assert load_answers(db).rows.tolist() == [0]
    assert [item["row"] for item in lease_items(db, who, Filters(), 9, 60)] == [1, 3]
    db.close()


def test_another_picture_in_a_row_is_refused_and_its_answers_can_be_taken_along(db_url: str, tmp_path: Path) -> None:
    db = Database(db_url)
    load_recovered(db, read_recovered(write(tmp_path / "1.parquet", [0, 1], [0, 0], [0.9, 0.8], [0, 0], ["a"])))
    record(db, Who(find_reviewer(db, "ann"), "t"), "r1", [Said(0, "yes"), Said(1, "no")])
    columns = {"row": [0, 1, 2], "example": ["new.jpg", "0.jpg", "1.jpg"], "class_index": [0] * 3}
    columns |= {"probability": [0.5] * 3, "observed": [0] * 3, "rank": [1] * 3}
    write_recovered(tmp_path / "2.parquet", columns, root=".", class_names=["a"])
    with pytest.raises(ValueError, match=r"2\.parquet: row 0 is new\.jpg, in the database 0\.jpg; .*--import"):
        load_recovered(db, read_recovered(tmp_path / "2.parquet"))
    audit = {"row": [1], "example": ["0.jpg"], "inclusion_probability": [0.5], "stratum": ["all"]}
    write_audit(tmp_path / "audit.parquet", audit)
    with pytest.raises(ValueError, match=r"audit\.parquet: row 1 is 0\.jpg, in the database 1\.jpg"):
        load_audit(db, read_audit(tmp_path / "audit.parquet"))
    assert load_answers(db).values.tolist() == [1, -1]  # nothing was touched
    other = Database(tmp_path / "other.db")
    load_recovered(other, read_recovered(tmp_path / "2.parquet"))
    import_answers(other, load_answers(db))
    got = load_answers(other)
    assert got.examples is not None
    assert dict(zip(got.examples, got.values.tolist(), strict=True)) == {"0.jpg": 1, "1.jpg": -1}
    assert got.rows.tolist() == [1, 2]
    db.close()
    other.close()


def test_loading_again_does_nothing_and_half_a_load_is_repeated(
    db_url: str, make_data: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make_data(examples=30)
    source = read_recovered(data.recovered)
    whole = Database(db_url)
    monkeypatch.setattr("onelabel.review.source.BATCH", 40)
    batches = type(source).batches

    def broken(self: Any, size: int = 40) -> Any:
        for i, batch in enumerate(batches(self, 40)):
            if i == 2:
                raise KeyboardInterrupt
            yield batch

    monkeypatch.setattr(type(source), "batches", broken)
    with pytest.raises(KeyboardInterrupt):
        load_recovered(whole, source)
    monkeypatch.setattr(type(source), "batches", batches)
    count = load_recovered(whole, source)
    assert count > 100
    assert load_recovered(whole, source) == 0
    before = tallies(whole)
    with whole.write() as connection:
        rebuild_tallies(connection)
    assert tallies(whole) == before
    assert sum(row[3] for row in before) == count
    whole.close()


def test_double_reviews_are_a_fixed_share(db_url: str, tmp_path: Path) -> None:
    rows = np.arange(4000)
    path = write(tmp_path / "r.parquet", rows, np.zeros(4000, int), np.full(4000, 0.5), np.zeros(4000, int), ["a"])
    db = Database(db_url)
    load_recovered(db, read_recovered(path), double_share=0.2)
    with db.read() as connection:
        needed = np.array(connection.execute(select(Item.needed)).scalars().all())
    assert abs((needed == 2).mean() - 0.2) < 0.03
    db.close()


def test_names_of_pictures_and_audit_only_items(db: Database) -> None:
    with db.read() as connection:
        assert connection.execute(select(Picture.example).where(Picture.row == 7)).scalar() == "pictures/007.jpg"
        assert connection.execute(select(Item.id).where(Item.kind == AUDIT)).first() is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"p": [1.5]}, "probability in"),
        ({"p": [float("nan")]}, "probability in"),
        ({"observed": [2]}, "observed in"),
        ({"rows": [-1]}, "row ≥ 0"),
    ],
)
def test_bad_values_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    entry = {"rows": [0], "cols": [0], "p": [0.5], "observed": [0], **change}
    path = write(tmp_path / "r.parquet", **entry, names=["a"])
    with pytest.raises(ValueError, match=message):
        load_recovered(Database(tmp_path / "x.db"), read_recovered(path))


def test_other_files_and_other_classes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("no")
    with pytest.raises(ValueError, match="not a Parquet file"):
        read_recovered(tmp_path / "text.parquet")
    with pytest.raises(FileNotFoundError):
        read_recovered(tmp_path / "none.parquet")
    db = Database(tmp_path / "x.db")
    table = pq.read_table(write(tmp_path / "0.parquet", [0], [0], [0.5], [0], ["a"]))
    for root in (3, ["a"], True, {"a": 1}, "a\0b"):
        header = {k: json.dumps(json.loads(v) | {"root": root}) for k, v in table.schema.metadata.items()}
        pq.write_table(table.replace_schema_metadata(header), tmp_path / "root.parquet")
        with pytest.raises(ValueError, match=r"root\.parquet must have a folder as root in its header"):
            read_recovered(tmp_path / "root.parquet")
    load_recovered(db, read_recovered(write(tmp_path / "1.parquet", [0], [0], [0.5], [0], ["a"])))
    with pytest.raises(ValueError, match="other classes"):
        load_recovered(db, read_recovered(write(tmp_path / "2.parquet", [0], [0], [0.5], [0], ["b"])))


def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    db = Database(tmp_path / "x.db")
    with db.write() as connection:
        connection.exec_driver_sql("INSERT INTO migration VALUES (99, 'future', 0)")
    db.close()
    with pytest.raises(ValueError, match="version 99"):
        Database(tmp_path / "x.db")
    with pytest.raises(FileNotFoundError):
        load_answers(tmp_path / "none.db")
