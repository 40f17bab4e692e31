"""Counts for the page: classes, progress, agreement, the audit trail."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, func, select
from sqlalchemy.orm import aliased

from onelabel.review.models import DOUBT, MISSING, Action, Answer, Event, Item, Klass, Picture, Reviewer, Tally
from onelabel.review.queue import audit_left
from onelabel.review.stats import Estimate, kappa, stratified, wilson

_WORDS = {1: "yes", -1: "no", 0: "unsure"}


def classes(connection: Connection, kind: int, search: str, limit: int, offset: int) -> dict[str, Any]:
    """Classes by the gain still expected, with their counts and precision; `search` is a part of the name."""
    gain = func.sum(Tally.gain)
    sums = [func.sum(getattr(Tally, name)) for name in ("total", "done", "confirmed", "refuted", "unsure")]
    query = select(Klass.class_index, Klass.name, *sums, gain).join(Tally, Tally.class_index == Klass.class_index)
    query = query.where(Tally.kind == kind)
    if search:
        # names are compared in Python's lower case: SQLite folds only ASCII
        names = connection.execute(select(Klass.class_index, Klass.name))
        query = query.where(Klass.class_index.in_([i for i, name in names if search.lower() in name.lower()]))
    query = query.group_by(Klass.class_index, Klass.name).order_by(gain.desc(), Klass.class_index)
    found = list(connection.execute(query))
    return {
        "count": len(found),
        "classes": [
            {
                "index": index,
                "name": name,
                "total": int(total),
                "done": int(done),
                "confirmed": int(yes),
                "refuted": int(no),
                "unsure": int(unsure),
                "expected": max(0.0, float(expected)),
                "precision": _shown(wilson(int(yes), int(yes + no))),
            }
            for index, name, total, done, yes, no, unsure, expected in found[offset : offset + limit]
        ],
    }


def _shown(estimate: Estimate | None) -> dict[str, float] | None:
    return None if estimate is None else estimate._asdict()


def overall(connection: Connection, class_index: int | None) -> dict[str, Any]:
    """Progress of everything, or of one class, with both estimates of precision for each kind of item."""
    query = select(Tally).where(Tally.kind.in_([MISSING, DOUBT]))
    if class_index is not None:
        query = query.where(Tally.class_index == class_index)
    by_kind: dict[int, list[Any]] = {MISSING: [], DOUBT: []}
    for row in connection.execute(query):
        by_kind[row.kind].append(row)
    result: dict[str, Any] = {}
    for kind, name in ((MISSING, "missing"), (DOUBT, "doubt")):
        rows = by_kind[kind]
        yes, no = sum(r.confirmed for r in rows), sum(r.refuted for r in rows)
        strata = [(int(r.total), int(r.confirmed + r.refuted), int(r.confirmed)) for r in rows]
        result[name] = {
            "total": int(sum(r.total for r in rows)),
            "done": int(sum(r.done for r in rows)),
            "confirmed": int(yes),
            "refuted": int(no),
            "unsure": int(sum(r.unsure for r in rows)),
            "expected": max(0.0, float(sum(r.gain for r in rows))),
            "precision": _shown(wilson(int(yes), int(yes + no))),
            "precision_all": _shown(stratified(strata)),
        }
    return result


def team(connection: Connection, agreed: dict[str, Any]) -> dict[str, Any]:
    """Who answered how much, how well people agree (see `agreement`), and how far the audit is."""
    query = select(Reviewer.name, func.count(Answer.item_id)).join(Answer, Answer.reviewer_id == Reviewer.id)
    counts = connection.execute(query.group_by(Reviewer.name).order_by(func.count(Answer.item_id).desc()))
    total, done = audit_left(connection)
    conflicts = connection.execute(select(func.count()).select_from(Item).where(Item.conflict)).scalar_one()
    return {
        "reviewers": [{"name": name, "answers": count} for name, count in counts],
        "agreement": agreed,
        "conflicts": conflicts,
        "audit": {"total": total, "done": done},
    }


def agreement(connection: Connection) -> dict[str, Any]:
    """Cohen's κ of every pair of reviewers who answered the same items, and the mean weighted by items."""
    first, second = aliased(Answer), aliased(Answer)
    same = (first.item_id == second.item_id) & (first.reviewer_id < second.reviewer_id)
    columns = (first.reviewer_id, second.reviewer_id, first.value, second.value)
    query = select(*columns, func.count()).select_from(first).join(second, same).group_by(*columns)
    tables: dict[tuple[int, int], dict[tuple[int, int], int]] = {}
    for a, b, x, y, count in connection.execute(query):
        tables.setdefault((a, b), {})[x, y] = count
    names = {r.id: r.name for r in connection.execute(select(Reviewer.id, Reviewer.name))}
    pairs: list[dict[str, Any]] = []
    for (a, b), table in sorted(tables.items()):
        n, agreed, value = kappa(table)
        pairs.append({"reviewers": [names[a], names[b]], "items": n, "agreement": agreed, "kappa": value})
    counted = [(p["items"], p["kappa"]) for p in pairs if p["kappa"] is not None]
    weight = sum(n for n, _ in counted)
    mean = sum(n * k for n, k in counted) / weight if weight else None
    return {"items": sum(p["items"] for p in pairs), "kappa": mean, "pairs": pairs}


def history(connection: Connection, before: int | None, item: int | None, limit: int) -> list[dict[str, Any]]:
    """The audit trail, newest first."""
    names = Reviewer.name.label("who"), Klass.name.label("class_name")
    query = (
        select(Event, *names, Picture.row, Picture.example, Action.undone)
        .join(Reviewer, Reviewer.id == Event.reviewer_id)
        .join(Action, Action.id == Event.action_id)
        .join(Item, Item.id == Event.item_id, isouter=True)
        .join(Klass, Klass.class_index == Item.class_index, isouter=True)
        .join(Picture, Picture.row == Item.row, isouter=True)
    )
    if before is not None:
        query = query.where(Event.id < before)
    if item is not None:
        query = query.where(Event.item_id == item)
    return [
        {
            "id": e.id,
            "at": e.at,
            "reviewer": e.who,
            "kind": e.kind,
            "item": e.item_id,
            "row": e.row,
            "example": e.example,
            "class_name": e.class_name,
            "value": _WORDS.get(e.value),
            "previous": _WORDS.get(e.previous),
            "note": e.note,
            "undone": bool(e.undone) and e.kind != "undo",
        }
        for e in connection.execute(query.order_by(Event.id.desc()).limit(limit))
    ]
