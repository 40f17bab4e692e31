"""Storing what people say: once, whatever is retried; undoable; with a trail."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, or_, select, update

from onelabel.review.change import Change, Said
from onelabel.review.database import Database
from onelabel.review.models import AUDIT, DONE, OPEN, SECOND, Action, Answer, Event, Item, Klass, Picture
from onelabel.review.queue import Who, describe


class RequestReused(ValueError):
    """A request id came a second time with other content."""


def record(db: Database, who: Who, request_id: str, said: Sequence[Said], *, trusted: bool = False) -> dict[str, Any]:
    """Store answers, skips and notes; the same request id again gives the first response again.

    `trusted` (an import) may answer what no tab was handed.
    """
    content = json.dumps([[s.item, s.word, s.note, s.revise] for s in said])
    now = time.time()
    with db.write() as connection:
        action, earlier = _begin(db, connection, who, request_id, "answers", content, now)
        if earlier is not None:
            return earlier
        ids = sorted({s.item for s in said})
        items = _lock(connection, ids)
        answers = _answers(connection, ids)
        audits = _audits_held(connection, who, {r.row for r in items.values()}, now)
        change = Change(connection, items, answers, now)
        results = []
        for one in said:
            status = _refusal(items.get(one.item), answers.get(one.item, {}), who, one, audits, now, trusted)
            if status is None:
                change.apply(one, who, action)
                status = "stored"
            results.append({"item": one.item, "status": status})
        change.write(db)
        finished = [row for row in sorted(audits) if _finish(connection, who, row)]
        return _respond(connection, action, {"results": results, "finished": finished})


def undo(db: Database, who: Who, request_id: str, seconds: float) -> dict[str, Any]:
    """Take back this tab's last action that stands; its items come back to the tab."""
    now = time.time()
    with db.write() as connection:
        action, earlier = _begin(db, connection, who, request_id, "undo", "", now)
        if earlier is not None:
            return {**earlier, "items": describe(connection, earlier["undone"])}
        last = select(Action.id).where(Action.holder == who.holder, Action.kind == "answers", ~Action.undone)
        target = connection.execute(last.order_by(Action.id.desc()).limit(1).with_for_update()).scalar()
        ids: list[int] = []
        if target is not None:
            connection.execute(update(Action).where(Action.id == target).values(undone=True))
            query = select(Event.item_id, Event.kind, Event.previous, Event.value).where(Event.action_id == target)
            events = list(connection.execute(query.order_by(Event.id.desc())))
            ids = sorted({e.item_id for e in events if e.kind != "note"})
            items = _lock(connection, ids)
            change = Change(connection, items, _answers(connection, ids), now)
            for e in events:
                if e.item_id in items and e.kind != "note":
                    change.revert(e, who, action)
            change.write(db, (who.holder, now + seconds))
            _reopen(connection, who, sorted({item.row for item in items.values()}), now, now + seconds)
        body = _respond(connection, action, {"undone": ids})
        return {**body, "items": describe(connection, ids)}


def _begin(
    db: Database, connection: Connection, who: Who, request_id: str, kind: str, content: str, now: float
) -> tuple[int, dict[str, Any] | None]:
    """A new action, or the response that an earlier request with this id got."""
    digest = hashlib.sha256(f"{kind}:{content}".encode()).hexdigest()
    values = {"reviewer_id": who.reviewer, "request_id": request_id, "holder": who.holder, "kind": kind, "at": now}
    new = db.insert(Action).values(**values, digest=digest, undone=False, response="").on_conflict_do_nothing()
    made = connection.execute(new.returning(Action.id)).scalar()
    if made is not None:
        return made, None
    query = select(Action.id, Action.digest, Action.response)
    same = (Action.reviewer_id == who.reviewer) & (Action.request_id == request_id)
    found = connection.execute(query.where(same)).one()
    if found.digest != digest:
        raise RequestReused(f"request_id {request_id!r} was used before with other content")
    return found.id, json.loads(found.response)


def _respond(connection: Connection, action: int, body: dict[str, Any]) -> dict[str, Any]:
    connection.execute(update(Action).where(Action.id == action).values(response=json.dumps(body)))
    return body


def _lock(connection: Connection, ids: Sequence[int]) -> dict[int, Row[Any]]:
    # in the order of ids, so that two batches cannot wait for each other
    query = select(Item.__table__).where(Item.id.in_(ids)).order_by(Item.id).with_for_update()
    return {row.id: row for row in connection.execute(query)} if ids else {}


def _answers(connection: Connection, ids: Sequence[int]) -> dict[int, dict[int, tuple[float, int]]]:
    """item → reviewer → (when, value)."""
    found: dict[int, dict[int, tuple[float, int]]] = {}
    if ids:
        query = select(Answer.item_id, Answer.reviewer_id, Answer.at, Answer.value).where(Answer.item_id.in_(ids))
        for item, reviewer, at, value in connection.execute(query):
            found.setdefault(item, {})[reviewer] = (at, value)
    return found


def _audits_held(connection: Connection, who: Who, rows: set[int], now: float) -> set[int]:
    held = (Picture.leased_by == who.holder) & (Picture.leased_until >= now)
    return set(connection.execute(select(Picture.row).where(Picture.row.in_(rows), Picture.audit, held)).scalars())


def _refusal(
    item: Any, answers: dict[int, tuple[float, int]], who: Who, one: Said, audits: set[int], now: float, trusted: bool
) -> str | None:
    """Why an answer is not taken: unknown, held (by another tab), settled (answered already); None if it is."""
    if item is None:
        return "unknown"
    if one.word == "note" or item.row in audits:
        return None
    held = item.leased_by not in (None, who.holder) and (item.leased_until or 0) >= now
    if not trusted and (held or (item.kind == AUDIT and not one.revise)):
        return "held"
    if who.reviewer in answers:
        return None if one.revise and one.word != "skip" else "settled"
    return "settled" if item.state == DONE and not item.conflict else None


def settle_picture(connection: Connection, row: int, lease: tuple[str, float] | None = None) -> None:
    """Set the state of an audit's picture from who has answered all its classes; lease it where that is asked."""
    width = connection.execute(select(func.count()).select_from(Klass)).scalar_one()
    span = Answer.item_id.between(row * width, row * width + width - 1)
    whole = select(Answer.reviewer_id).where(span).group_by(Answer.reviewer_id).having(func.count() == width)
    done = list(connection.execute(whole.order_by(func.max(Answer.at))).scalars())
    picture = connection.execute(select(Picture.needed, Picture.first_by).where(Picture.row == row)).one()
    first = picture.first_by if picture.first_by in done else done[0] if done else None
    state = OPEN if not done else SECOND if len(done) < picture.needed else DONE
    values: dict[str, Any] = {"state": state, "first_by": first}
    if lease is not None:
        values |= {"leased_by": lease[0], "leased_until": lease[1]}
    connection.execute(update(Picture).where(Picture.row == row).values(values))


def _finish(connection: Connection, who: Who, row: int) -> bool:
    """Free an audit's picture when this reviewer has answered every class of it."""
    width = connection.execute(select(func.count()).select_from(Klass)).scalar_one()
    span = Answer.item_id.between(row * width, row * width + width - 1)
    mine = select(func.count()).select_from(Answer).where(Answer.reviewer_id == who.reviewer, span)
    if connection.execute(mine).scalar_one() < width:
        return False
    settle_picture(connection, row)
    connection.execute(update(Picture).where(Picture.row == row).values(leased_by=None, leased_until=None))
    return True


def _reopen(connection: Connection, who: Who, rows: Sequence[int], now: float, until: float) -> None:
    """After an undo the audit's pictures come back to this tab, unless another holds them."""
    free = or_(Picture.leased_by.is_(None), Picture.leased_by == who.holder, Picture.leased_until < now)
    query = select(Picture.row).where(Picture.row.in_(rows), Picture.audit, free)
    for row in connection.execute(query).scalars().all():
        settle_picture(connection, row, (who.holder, until))
