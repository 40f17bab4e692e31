"""The new states of items after answers, written in a handful of statements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, Row, bindparam, delete, update

from onelabel.review.database import Database
from onelabel.review.models import DONE, DOUBT, OPEN, SECOND, Answer, Event, Item, Tally
from onelabel.review.queue import Who

Word = Literal["yes", "no", "unsure", "skip", "note"]
VALUES = {"yes": 1, "no": -1, "unsure": 0}


@dataclass(frozen=True)
class Said:
    """One answer to one item; `revise` allows replacing this reviewer's earlier answer."""

    item: int
    word: Word
    note: str | None = None
    revise: bool = False


class Change:
    """New states of locked items, gathered and written in a handful of statements."""

    def __init__(
        self,
        connection: Connection,
        items: dict[int, Row[Any]],
        answers: dict[int, dict[int, tuple[float, int]]],
        now: float,
    ) -> None:
        self.connection, self.items, self.answers, self.now = connection, items, answers, now
        self.priority = {key: item.priority for key, item in items.items()}
        self.events: list[dict[str, Any]] = []
        self.touched: set[int] = set()
        self.changed: dict[tuple[int, int], int | None] = {}

    def apply(self, one: Said, who: Who, action: int) -> None:
        mine = self.answers.setdefault(one.item, {})
        previous = mine[who.reviewer][1] if who.reviewer in mine else None
        value = VALUES.get(one.word)
        kind = "answer" if value is not None else one.word
        if value is not None:
            mine[who.reviewer] = (mine[who.reviewer][0] if previous is not None else self.now, value)
            self.changed[one.item, who.reviewer] = value
        elif kind == "skip":
            self.priority[one.item] -= 1.0
        if kind != "note":
            self.touched.add(one.item)
        self._log(one.item, who, action, kind, value, previous, one.note)

    def revert(self, event: Any, who: Who, action: int) -> None:
        mine = self.answers.setdefault(event.item_id, {})
        if event.kind == "skip":
            self.priority[event.item_id] += 1.0
        elif event.previous is None:
            mine.pop(who.reviewer, None)
            self.changed[event.item_id, who.reviewer] = None
        else:
            mine[who.reviewer] = (self.now, event.previous)
            self.changed[event.item_id, who.reviewer] = event.previous
        self.touched.add(event.item_id)
        self._log(event.item_id, who, action, "undo", event.previous, event.value, None)

    def _log(
        self, item: int, who: Who, action: int, kind: str, value: int | None, previous: int | None, note: str | None
    ) -> None:
        row = {"action_id": action, "item_id": item, "reviewer_id": who.reviewer, "kind": kind, "value": value}
        self.events.append({**row, "previous": previous, "note": note, "at": self.now})

    def write(self, db: Database, lease: tuple[str, float] | None = None) -> None:
        run = self.connection.execute
        if self.events:
            run(db.insert(Event), self.events)
        self._write_answers(db)
        rows, tallies = [], Tallies()
        holder, until = lease or (None, None)
        for key in sorted(self.touched):
            before = self.items[key]
            after = resolve(before.needed, self.answers.get(key, {}))
            tallies.move(before, after)
            lease_ = {"leased_by": holder, "leased_until": until}
            rows.append({"key": key, "priority": self.priority[key], **after, **lease_})
        if rows:
            table: Any = Item.__table__  # not the class: that would be the ORM's update by primary key
            run(update(table).where(table.c.id == bindparam("key")), rows)
        tallies.write(self.connection)

    def _write_answers(self, db: Database) -> None:
        gone = [key for key, value in self.changed.items() if value is None]
        for item, reviewer in gone:
            self.connection.execute(delete(Answer).where(Answer.item_id == item, Answer.reviewer_id == reviewer))
        kept = [
            {"item_id": item, "reviewer_id": reviewer, "value": value, "at": self.answers[item][reviewer][0]}
            for (item, reviewer), value in self.changed.items()
            if value is not None
        ]
        if kept:
            new = db.insert(Answer)
            set_ = {"value": new.excluded.value, "at": new.excluded.at}
            upsert = new.on_conflict_do_update(index_elements=["item_id", "reviewer_id"], set_=set_)
            self.connection.execute(upsert, kept)


def resolve(needed: int, answers: dict[int, tuple[float, int]]) -> dict[str, Any]:
    """State and value from all current answers: the majority of yes and no; a tie is a conflict without a label."""
    values = [value for _, value in answers.values()]
    total, decided = sum(values), any(values)
    state = OPEN if not values else SECOND if len(values) < needed else DONE
    first = min(answers, key=lambda reviewer: answers[reviewer]) if answers else None
    value = None if not values else (total > 0) - (total < 0)
    return {"state": state, "first_by": first, "value": value, "conflict": decided and total == 0}


class Tallies:
    """Differences of the counts, added up and written in one order, so that two writers cannot deadlock."""

    def __init__(self) -> None:
        self.by_key: dict[tuple[int, int, int], list[float]] = {}

    def move(self, before: Row[Any], after: dict[str, Any]) -> None:
        """Count an item out of its old state and into its new one."""
        cell = self.by_key.setdefault((before.kind, before.class_index, before.bin), [0.0] * 5)
        hit = -before.observed if before.kind == DOUBT else 1
        for sign, state, value in ((-1, before.state, before.value), (1, after["state"], after["value"])):
            cell[0] += sign * (state == DONE)
            if value is not None:
                cell[3 if value == 0 else 1 if value == hit else 2] += sign
            cell[4] += sign * (before.gain if state != DONE else 0.0)

    def write(self, connection: Connection) -> None:
        names = ("done", "confirmed", "refuted", "unsure", "gain")
        for (kind, class_index, bin_), cell in sorted(self.by_key.items()):
            sets = {name: getattr(Tally, name) + step for name, step in zip(names, cell, strict=True) if step}
            at = (Tally.kind == kind) & (Tally.class_index == class_index) & (Tally.bin == bin_)
            if sets:
                connection.execute(update(Tally).where(at).values(sets))
