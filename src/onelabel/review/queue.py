"""Handing out work: each item, and each picture of an audit, to one tab at a time, for a while."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, Select, func, or_, select, update

from onelabel.review.database import Database
from onelabel.review.models import (
    AUDIT,
    DOUBT,
    MISSING,
    OPEN,
    SECOND,
    Answer,
    Event,
    Given,
    Item,
    Klass,
    Picture,
    Reviewer,
)

Disagreement = Literal["none", "model", "reviewers"]


@dataclass(frozen=True)
class Who:
    """A reviewer in one tab: the tab holds leases, the reviewer answers."""

    reviewer: int
    tab: str

    @property
    def holder(self) -> str:
        return f"{self.reviewer}:{self.tab}"


@dataclass(frozen=True)
class Filters:
    """Which items to hand out; `class_index` None means all classes."""

    class_index: int | None = None
    low: float = 0.0
    high: float = 1.0
    disagreement: Disagreement = "none"


def lease_items(db: Database, who: Who, filters: Filters, count: int, seconds: float) -> list[dict[str, Any]]:
    """The next items for this tab by falling gain: first what it holds already, then what nobody holds."""
    now = time.time()
    with db.write() as connection:
        mine = _filtered(select(Item.id).where(Item.leased_by == who.holder), filters)
        held = list(connection.execute(mine.order_by(Item.priority.desc(), Item.id.desc())).scalars())
        surplus = select(Item.id).where(Item.leased_by == who.holder, Item.id.not_in(held[:count]))
        _free(connection, list(connection.execute(surplus).scalars()))
        chosen = held[:count]
        for query in _queries(who, filters):
            if len(chosen) >= count:
                break
            free = or_(Item.leased_by.is_(None), Item.leased_until < now)
            query = query.where(free).limit(count - len(chosen)).with_for_update(skip_locked=True, of=Item)
            chosen += list(connection.execute(query).scalars())
        if chosen:
            lease = {"leased_by": who.holder, "leased_until": now + seconds}
            connection.execute(update(Item).where(Item.id.in_(chosen)).values(lease))
        return describe(connection, chosen)


def _filtered(query: Select[Any], filters: Filters) -> Select[Any]:
    if filters.class_index is not None:
        query = query.where(Item.class_index == filters.class_index)
    if filters.disagreement == "reviewers":
        query = query.where(Item.conflict)
    else:
        query = query.where(Item.kind == (DOUBT if filters.disagreement == "model" else MISSING))
    if filters.low > 0 or filters.high < 1:
        query = query.where(Item.probability.between(filters.low, filters.high))
    return query


def _queries(who: Who, filters: Filters) -> list[Select[Any]]:
    """Ever less urgent sources of items, each a walk along an index: second reviews, new ones, skipped ones."""
    base = _filtered(select(Item.id), filters).order_by(Item.priority.desc(), Item.id.desc())
    if filters.disagreement == "reviewers":
        return [base]
    second = base.where(Item.state == SECOND, Item.first_by != who.reviewer)
    fresh = base.where(Item.state == OPEN, Item.priority >= 0)
    skipped = base.where(Item.state == OPEN, Item.priority < 0)
    if filters.disagreement == "none" and (filters.low > 0 or filters.high < 1):
        # a missing label's gain is its probability: the index goes straight to the range
        fresh = fresh.where(Item.priority.between(filters.low, filters.high))
    return [second, fresh, skipped]


def _free(connection: Connection, ids: Sequence[int]) -> None:
    if ids:
        connection.execute(update(Item).where(Item.id.in_(ids)).values(leased_by=None, leased_until=None))


def renew(db: Database, who: Who, seconds: float) -> int:
    """Hold on to everything this tab holds; returns how many items and pictures that is."""
    until = time.time() + seconds
    with db.write() as connection:
        items = connection.execute(update(Item).where(Item.leased_by == who.holder).values(leased_until=until))
        pictures = connection.execute(update(Picture).where(Picture.leased_by == who.holder).values(leased_until=until))
        return items.rowcount + pictures.rowcount


def release(db: Database, who: Who) -> int:
    """Give back everything this tab holds."""
    with db.write() as connection:
        none = {"leased_by": None, "leased_until": None}
        items = connection.execute(update(Item).where(Item.leased_by == who.holder).values(none))
        pictures = connection.execute(update(Picture).where(Picture.leased_by == who.holder).values(none))
        return items.rowcount + pictures.rowcount


def describe(connection: Connection, ids: Sequence[int]) -> list[dict[str, Any]]:
    """What the page shows of items, in the order of `ids`."""
    if not ids:
        return []
    query = select(Item, Klass.name, Picture.example).join(Klass, Klass.class_index == Item.class_index)
    found = {r.id: r for r in connection.execute(query.join(Picture, Picture.row == Item.row).where(Item.id.in_(ids)))}
    given, notes = _given(connection, [r.row for r in found.values()]), _notes(connection, ids)
    names = {MISSING: "missing", DOUBT: "doubt", AUDIT: "audit"}
    return [
        {
            "id": r.id,
            "row": r.row,
            "example": r.example,
            "class_index": r.class_index,
            "class_name": r.name,
            "kind": names[r.kind],
            "probability": r.probability,
            "observed": r.observed,
            "gain": r.gain,
            "conflict": bool(r.conflict),
            "given": given.get(r.row, []),
            "notes": notes.get(r.id, []),
        }
        for r in (found[i] for i in ids if i in found)
    ]


def _given(connection: Connection, rows: Sequence[int]) -> dict[int, list[str]]:
    query = select(Given.row, Klass.name).join(Klass, Klass.class_index == Given.class_index)
    names: dict[int, list[str]] = {}
    for row, name in connection.execute(query.where(Given.row.in_(set(rows))).order_by(Given.row, Given.class_index)):
        names.setdefault(row, []).append(name)
    return names


def _notes(connection: Connection, ids: Sequence[int]) -> dict[int, list[str]]:
    query = select(Event.item_id, Reviewer.name, Event.note).join(Reviewer, Reviewer.id == Event.reviewer_id)
    notes: dict[int, list[str]] = {}
    for item, name, note in connection.execute(
        query.where(Event.item_id.in_(ids), Event.note.is_not(None)).order_by(Event.id)
    ):
        notes.setdefault(item, []).append(f"{name}: {note}")
    return notes


def lease_picture(db: Database, who: Who, seconds: float, skip: int | None = None) -> dict[str, Any] | None:
    """The next picture of the audit with every class, and this reviewer's answers so far; None when none is left.

    `skip` puts a picture this tab holds at the end of the queue first.
    """
    now = time.time()
    with db.write() as connection:
        if skip is not None:
            back = {"passes": Picture.passes + 1, "leased_by": None, "leased_until": None}
            connection.execute(update(Picture).where(Picture.row == skip, Picture.leased_by == who.holder).values(back))
        mine = select(Picture.row).where(Picture.audit, Picture.leased_by == who.holder).order_by(Picture.row)
        free = or_(Picture.leased_by.is_(None), Picture.leased_until < now)
        base = select(Picture.row).where(Picture.audit, free).order_by(Picture.passes, Picture.row)
        base = base.limit(1).with_for_update(skip_locked=True)
        queries = [
            mine.limit(1),
            base.where(Picture.state == SECOND, Picture.first_by != who.reviewer),
            base.where(Picture.state == OPEN),
        ]
        row = next((r for query in queries if (r := connection.execute(query).scalar()) is not None), None)
        if row is None:
            return None
        lease = {"leased_by": who.holder, "leased_until": now + seconds}
        connection.execute(update(Picture).where(Picture.row == row).values(lease))
        return describe_picture(db, connection, who, row)


def describe_picture(db: Database, connection: Connection, who: Who, row: int) -> dict[str, Any]:
    """One picture with an entry for every class; items that do not exist yet are made."""
    names = list(connection.execute(select(Klass.class_index, Klass.name).order_by(Klass.class_index)))
    width = len(names)
    ensure_items(db, connection, [row] * width, range(width), width)
    span = (row * width, row * width + width - 1)
    query = select(Answer.item_id, Answer.value)
    query = query.where(Answer.reviewer_id == who.reviewer, Answer.item_id.between(*span))
    answers = {r.item_id: r.value for r in connection.execute(query)}
    example = connection.execute(select(Picture.example).where(Picture.row == row)).scalar_one()
    words = {1: "yes", -1: "no", 0: "unsure"}
    classes = [
        {"item": item, "class_index": at, "name": name, "answer": words.get(answers.get(item, 9))}
        for item, (at, name) in enumerate(names, start=row * width)
    ]
    return {"row": row, "example": example, "given": _given(connection, [row]).get(row, []), "classes": classes}


def ensure_items(db: Database, connection: Connection, rows: Sequence[int], cols: Sequence[int], width: int) -> None:
    """Make the items, and their pictures, that do not exist yet: asked about, but not suggested."""
    ids = [row * width + at for row, at in zip(rows, cols, strict=True)]
    have = set(connection.execute(select(Item.id).where(Item.id.in_(ids))).scalars())
    known = set(connection.execute(select(Picture.row).where(Picture.row.in_(set(rows)))).scalars())
    pictures = [{"row": row, "example": f"#{row}"} for row in sorted(set(rows) - known)]
    if pictures:
        connection.execute(db.insert(Picture).on_conflict_do_nothing(index_elements=["row"]), pictures)
    entries = zip(ids, rows, cols, strict=True)
    new = [{"id": i, "row": row, "class_index": at, "kind": AUDIT} for i, row, at in entries if i not in have]
    if new:
        connection.execute(db.insert(Item).on_conflict_do_nothing(index_elements=["id"]), new)


def audit_left(connection: Connection) -> tuple[int, int]:
    """How many pictures the audit has, and how many of them are done."""
    query = select(Picture.state, func.count()).where(Picture.audit).group_by(Picture.state)
    counts = {r[0]: r[1] for r in connection.execute(query)}
    return sum(counts.values()), counts.get(2, 0)
