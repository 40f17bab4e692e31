"""Leases, answers, undo, double review and audits: the same in both databases."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest
from sqlalchemy import func, select, update

from onelabel.labels import Labels
from onelabel.review import read_recovered, write_recovered
from onelabel.review.answers import RequestReused, record, undo
from onelabel.review.change import Said
from onelabel.review.database import Database
from onelabel.review.export import Answers, export_file, export_labels, find_reviewer, import_answers, load_answers
from onelabel.review.load import load_recovered, rebuild_tallies
from onelabel.review.models import Answer, Event, Item, Picture, Tally
from onelabel.review.progress import agreement, history, overall
from onelabel.review.queue import Filters, Who, lease_items, lease_picture, release, renew


def person(db: Database, name: str, tab: str = "tab") -> Who:
    return Who(find_reviewer(db, name), tab)


def statuses(body: dict[str, Any]) -> list[str]:
    return [result["status"] for result in body["results"]]


def tallies(db: Database) -> list[tuple[Any, ...]]:
    with db.read() as connection:
        found = connection.execute(select(Tally).order_by(Tally.kind, Tally.class_index, Tally.bin))
        return [(*row[:-1], round(row.gain, 6)) for row in found]


def test_items_come_by_falling_gain_and_to_one_tab_only(db: Database) -> None:
    ann, other = person(db, "ann"), person(db, "ann", "second")
    first = lease_items(db, ann, Filters(), 10, 60)
    gains = [item["gain"] for item in first]
    assert gains == sorted(gains, reverse=True)
    second = lease_items(db, other, Filters(), 10, 60)
    assert not {i["id"] for i in first} & {i["id"] for i in second}
    assert [i["id"] for i in lease_items(db, ann, Filters(), 10, 60)] == [i["id"] for i in first]  # a reload
    assert statuses(record(db, other, "x", [Said(first[0]["id"], "yes")])) == ["held"]


def test_filters(db: Database) -> None:
    ann = person(db, "ann")
    some = lease_items(db, ann, Filters(class_index=2, low=0.3, high=0.6), 200, 60)
    assert some
    assert all(i["class_index"] == 2 and 0.3 <= i["probability"] <= 0.6 and i["observed"] == 0 for i in some)
    doubts = lease_items(db, ann, Filters(disagreement="model"), 200, 60)
    assert doubts
    assert all(i["kind"] == "doubt" and i["observed"] == 1 and i["probability"] < 0.5 for i in doubts)
    with db.read() as connection:
        held = connection.execute(select(func.count()).where(Item.leased_by == ann.holder)).scalar()
    assert held == len(doubts)  # what the tab held before was given back


def test_leases_expire_renew_and_release(db: Database) -> None:
    ann, bob = person(db, "ann"), person(db, "bob")
    mine = [i["id"] for i in lease_items(db, ann, Filters(), 5, 0.2)]
    time.sleep(0.25)
    theirs = [i["id"] for i in lease_items(db, bob, Filters(), 5, 60)]
    assert theirs == mine
    assert statuses(record(db, ann, "late", [Said(mine[0], "yes")])) == ["held"]
    assert renew(db, bob, 60) == 5
    assert release(db, bob) == 5
    assert statuses(record(db, ann, "now", [Said(mine[0], "yes")])) == ["stored"]


def test_a_request_is_stored_once(db: Database) -> None:
    ann = person(db, "ann")
    item = lease_items(db, ann, Filters(), 1, 60)[0]["id"]
    said = [Said(item, "yes", "clear")]
    first = record(db, ann, "same", said)
    assert record(db, ann, "same", said) == first
    with db.read() as connection:
        assert connection.execute(select(func.count()).select_from(Event)).scalar() == 1
    with pytest.raises(RequestReused):
        record(db, ann, "same", [Said(item, "no")])
    assert statuses(record(db, ann, "again", [Said(item, "no")])) == ["settled"]
    assert statuses(record(db, person(db, "bob"), "b", [Said(item, "no")])) == ["settled"]
    assert statuses(record(db, ann, "fix", [Said(item, "no", revise=True)])) == ["stored"]
    assert export_labels(db)[2].tolist() == [-1]
    assert statuses(record(db, ann, "none", [Said(10**9, "no")])) == ["unknown"]


def test_undo_goes_back_step_by_step(db: Database) -> None:
    ann = person(db, "ann")
    ids = [i["id"] for i in lease_items(db, ann, Filters(), 6, 60)]
    clean = tallies(db)
    record(db, ann, "1", [Said(i, "yes") for i in ids[:3]])
    after_one = tallies(db)
    record(db, ann, "2", [Said(ids[3], "no"), Said(ids[4], "skip"), Said(ids[0], "unsure", revise=True)])
    back = undo(db, ann, "u1", 60)
    assert back["undone"] == sorted([ids[3], ids[4], ids[0]])
    assert undo(db, ann, "u1", 60)["undone"] == back["undone"]  # a retried undo does not undo more
    assert tallies(db) == after_one
    assert export_labels(db)[2].tolist() == [1, 1, 1]
    undo(db, ann, "u2", 60)
    assert tallies(db) == clean
    assert undo(db, ann, "u3", 60)["undone"] == []
    assert [i["id"] for i in lease_items(db, ann, Filters(), 6, 60)] == ids  # skipped and answered ones are back
    with db.read() as connection:
        kinds = [event["kind"] for event in history(connection, None, ids[0], 50)]
    assert kinds == ["undo", "undo", "answer", "answer"]


def test_skipped_items_come_last(db: Database) -> None:
    ann = person(db, "ann")
    everything = [i["id"] for i in lease_items(db, ann, Filters(class_index=0), 200, 60)]
    record(db, ann, "s", [Said(everything[0], "skip")])
    assert [i["id"] for i in lease_items(db, ann, Filters(class_index=0), 200, 60)] == everything[1:] + everything[:1]
    assert lease_items(db, ann, Filters(class_index=0, low=0.01), 200, 60)[-1]["id"] == everything[0]


def test_double_review_conflict_and_kappa(db: Database) -> None:
    ann, bob, eve = (person(db, name) for name in ("ann", "bob", "eve"))
    with db.write() as connection:
        connection.execute(update(Item).values(needed=2))
    ids = [i["id"] for i in lease_items(db, ann, Filters(), 4, 60)]
    record(db, ann, "a", [Said(i, w) for i, w in zip(ids, ("yes", "yes", "no", "unsure"), strict=True)])
    assert not {i["id"] for i in lease_items(db, ann, Filters(), 50, 60)} & set(ids)  # not twice to one person
    release(db, ann)
    assert [i["id"] for i in lease_items(db, bob, Filters(), 4, 60)] == ids  # second reviews come first
    record(db, bob, "b", [Said(i, w) for i, w in zip(ids, ("yes", "no", "no", "yes"), strict=True)])
    rows, cols, values = export_labels(db)
    decided = dict(zip((rows * 5 + cols).tolist(), values.tolist(), strict=True))
    assert decided == {ids[0]: 1, ids[2]: -1, ids[3]: 1}  # the contradicted one is no label
    conflicts = lease_items(db, eve, Filters(disagreement="reviewers"), 9, 60)
    assert [i["id"] for i in conflicts] == [ids[1]]
    with db.read() as connection:
        found = agreement(connection)
    assert found["items"] == 4
    assert found["kappa"] == pytest.approx(0.2)  # by hand: p_o = 2/4, p_e = (2·2 + 1·2 + 1·0)/16 = 6/16
    assert statuses(record(db, eve, "e", [Said(ids[1], "no")])) == ["stored"]
    assert len(export_labels(db)[0]) == 4
    assert not lease_items(db, eve, Filters(disagreement="reviewers"), 9, 60)


def test_an_audit_asks_every_class_once(db: Database) -> None:
    ann, bob = person(db, "ann"), person(db, "bob")
    mine, theirs = lease_picture(db, ann, 60), lease_picture(db, bob, 60)
    assert mine
    assert theirs
    assert (mine["row"], theirs["row"]) == (0, 1)
    assert [c["name"] for c in mine["classes"]][-1] == "<b>horse</b>"
    items = [c["item"] for c in mine["classes"]]
    assert record(db, ann, "1", [Said(i, "no") for i in items[:4]])["finished"] == []
    again = lease_picture(db, ann, 60)
    assert again
    assert [c["answer"] for c in again["classes"]] == ["no"] * 4 + [None]
    assert record(db, ann, "2", [Said(items[4], "yes")])["finished"] == [0]
    assert statuses(record(db, bob, "3", [Said(items[0], "yes")])) in (["settled"], ["held"])
    undo(db, ann, "u", 60)
    back = lease_picture(db, ann, 60)
    assert back
    assert back["row"] == 0
    record(db, ann, "4", [Said(items[4], "yes")])
    assert [p["row"] for p in [lease_picture(db, ann, 60)] if p] == [2]
    assert [p["row"] for p in [lease_picture(db, ann, 60, skip=2)] if p] == [2]  # the only one left comes again
    with db.read() as connection:
        assert connection.execute(select(Picture.state).where(Picture.row == 0)).scalar() == 2
    rows, _, values = export_labels(db)
    assert (rows == 0).sum() == 5
    assert values[rows == 0].tolist() == [-1] * 4 + [1]


def test_answers_become_labels_and_travel(db: Database, data: Any, tmp_path: Any) -> None:
    ann = person(db, "ann")
    leased = lease_items(db, ann, Filters(), 20, 60)
    said = [Said(i["id"], "yes" if data.truth[i["row"], i["class_index"]] else "no") for i in leased]
    record(db, ann, "1", [*said[:19], Said(said[19].item, "unsure")])
    labels = Labels.from_matrix(data.observed).with_updates(*export_labels(db))
    dense = labels.to_dense()
    for item in leased[:19]:
        assert dense[item["row"], item["class_index"]] == (1 if data.truth[item["row"], item["class_index"]] else -1)
    assert labels.num_observed == (data.observed != 0).sum() + 19
    assert export_file(db, tmp_path / "out.parquet") == 19
    answers = load_answers(tmp_path / "out.parquet")
    assert isinstance(answers, Answers)
    other = Database(tmp_path / "other.db")
    load_recovered(other, read_recovered(data.recovered), min_probability=0.99)  # hardly anything is suggested now
    assert import_answers(other, answers) == {"stored": 19, "settled": 0, "elsewhere": 0, "total": 19}
    assert import_answers(other, answers) == {"stored": 0, "settled": 19, "elsewhere": 0, "total": 19}
    np.testing.assert_array_equal(export_labels(other), export_labels(db))
    other.close()
    damaged = bytearray((tmp_path / "other.db").read_bytes())
    damaged[3 * 4096 :] = b"\xff" * (len(damaged) - 3 * 4096)  # the schema is whole, the tables are not
    (tmp_path / "damaged.db").write_bytes(damaged)
    with pytest.raises(ValueError, match=r"damaged\.db: cannot be opened as a review database") as told:
        load_answers(tmp_path / "damaged.db")
    assert "\n" not in str(told.value)
    table = parquet.read_table(tmp_path / "out.parquet")
    for wrong in (3, 0.5, True, "cat"):
        header = {k: json.dumps(json.loads(v) | {"class_names": wrong}) for k, v in table.schema.metadata.items()}
        parquet.write_table(table.replace_schema_metadata(header), tmp_path / "wrong.parquet")
        with pytest.raises(ValueError, match=r"wrong\.parquet: .*class_names is no list"):
            load_answers(tmp_path / "wrong.parquet")


@pytest.mark.parametrize("kind", ["database", "export"])
def test_imported_answers_go_to_the_pictures_of_their_names(db: Database, data: Any, tmp_path: Any, kind: str) -> None:
    """The next round's rows are in another order, three pictures are gone, two are new."""
    ann = person(db, "ann")
    leased = lease_items(db, ann, Filters(), 60, 60)
    truth = {(i["example"], i["class_index"]): bool(data.truth[i["row"], i["class_index"]]) for i in leased}
    record(db, ann, "1", [Said(i["id"], "yes" if truth[i["example"], i["class_index"]] else "no") for i in leased])
    gone = sorted({i["example"] for i in leased})[:3]
    names = [f"pictures/{row:03d}.jpg" for row in np.random.default_rng(3).permutation(40)]
    names = ["new/a.jpg", *(name for name in names if name not in gone), "new/b.jpg"]
    width = data.truth.shape[1]
    rows = np.repeat(np.arange(len(names)), width)
    columns = {
        "row": rows,
        "example": [names[row] for row in rows],
        "class_index": np.tile(np.arange(width), len(names)),
    }
    # hardly anything is suggested: pictures without a suggestion are found all the same
    columns |= {"probability": np.where(rows < 3, 0.5, 0.01), "observed": np.zeros(len(rows), int), "rank": rows}
    write_recovered(
        tmp_path / "next.parquet", columns, root=".", class_names=read_recovered(data.recovered).class_names
    )
    other = Database(tmp_path / "next.db")
    load_recovered(other, read_recovered(tmp_path / "next.parquet"))
    if kind == "export":
        export_file(db, tmp_path / "out.parquet")
    told = import_answers(other, load_answers(db if kind == "database" else tmp_path / "out.parquet"))
    left = sum(name in gone for name, _ in truth)
    assert left >= 3
    assert told == {"stored": 60 - left, "settled": 0, "elsewhere": left, "total": 60}
    got = load_answers(other)
    found = {(names[row], at): value > 0 for row, at, value in zip(got.rows, got.cols, got.values, strict=True)}
    assert found == {entry: value for entry, value in truth.items() if entry[0] not in gone}
    assert got.examples == [names[row] for row in got.rows]
    stranger = load_answers(db)._replace(examples=["elsewhere.jpg"] * 60)
    with pytest.raises(ValueError, match="no earlier answer is about a picture"):
        import_answers(other, stranger)
    other.close()


def test_random_sequences_keep_the_counts_right(db: Database) -> None:
    """Whatever people do, in whatever order, the running tallies equal a recount."""
    rng = np.random.default_rng(5)
    people = [person(db, name) for name in ("ann", "bob", "eve")]
    with db.write() as connection:
        connection.execute(update(Item).where(Item.id % 3 == 0).values(needed=2))
    for step in range(60):
        who = people[rng.integers(3)]
        if rng.random() < 0.2:
            undo(db, who, f"u{step}", 60)
            continue
        filters = Filters(disagreement=("none", "none", "model", "reviewers")[rng.integers(4)])
        leased = lease_items(db, who, filters, 6, 60)
        words = ("yes", "no", "unsure", "skip")
        record(db, who, f"r{step}", [Said(i["id"], words[rng.integers(4)], revise=True) for i in leased])  # type: ignore[arg-type]
    counted = tallies(db)
    with db.write() as connection:
        rebuild_tallies(connection)
    assert tallies(db) == counted
    with db.read() as connection:
        shown = overall(connection, None)["missing"]
        done = connection.execute(select(func.count()).where(Item.state == 2, Item.kind == 0)).scalar()
    assert shown["done"] == done > 20


def test_many_at_once_answer_every_item_exactly_once(db: Database) -> None:
    total = 100
    with db.read() as connection:
        target = connection.execute(select(func.count()).where(Item.kind == 0)).scalar_one()
    errors: list[BaseException] = []

    def work(name: str) -> None:
        try:
            who = person(db, name)
            for step in range(total):
                leased = lease_items(db, who, Filters(), 7, 60)
                if not leased:
                    return
                body = record(db, who, f"{name}{step}", [Said(i["id"], "yes") for i in leased])
                assert set(statuses(body)) == {"stored"}
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(f"p{i}",)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    with db.read() as connection:
        assert connection.execute(select(func.count()).select_from(Answer)).scalar() == target
        assert connection.execute(select(func.count()).select_from(Event)).scalar() == target
