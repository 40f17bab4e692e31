"""The tables. Times are seconds since the epoch by the server's clock."""

from __future__ import annotations

from sqlalchemy import BigInteger, Float, ForeignKey, Index, Integer, SmallInteger, String, Text, UniqueConstraint, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

MISSING, DOUBT, AUDIT = 0, 1, 2  # item.kind
OPEN, SECOND, DONE = 0, 1, 2  # item.state, picture.state
BINS = 10  # tenths of probability, for the stratified estimate

#: SQLite counts up only in columns of type INTEGER.
Key = BigInteger().with_variant(Integer, "sqlite")


HELD = text("leased_by IS NOT NULL")


class Base(DeclarativeBase):
    """Holds the metadata of all tables."""


class Meta(Base):
    __tablename__ = "meta"
    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[str] = mapped_column(Text)


class Klass(Base):
    __tablename__ = "klass"
    class_index: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    name: Mapped[str] = mapped_column(Text)


class Picture(Base):
    __tablename__ = "picture"
    row: Mapped[int] = mapped_column(Key, primary_key=True, autoincrement=False)
    example: Mapped[str] = mapped_column(Text)
    audit: Mapped[bool] = mapped_column(default=False)
    inclusion_probability: Mapped[float | None] = mapped_column(Float(53))
    stratum: Mapped[str | None] = mapped_column(Text)
    state: Mapped[int] = mapped_column(SmallInteger, default=OPEN)
    needed: Mapped[int] = mapped_column(SmallInteger, default=1)
    first_by: Mapped[int | None] = mapped_column(Integer)
    passes: Mapped[int] = mapped_column(Integer, default=0)
    leased_by: Mapped[str | None] = mapped_column(String(80))
    leased_until: Mapped[float | None] = mapped_column(Float(53))
    __table_args__ = (
        Index(
            "ix_picture_audit",
            "state",
            "passes",
            "row",
            sqlite_where=text("audit = 1"),  # as SQLAlchemy spells the condition, or SQLite would not use it
            postgresql_where=text("audit"),
        ),
        Index("ix_picture_lease", "leased_by", sqlite_where=HELD, postgresql_where=HELD),
    )


class Given(Base):
    __tablename__ = "given"
    row: Mapped[int] = mapped_column(Key, primary_key=True, autoincrement=False)
    class_index: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)


class Item(Base):
    __tablename__ = "item"
    id: Mapped[int] = mapped_column(Key, primary_key=True, autoincrement=False)
    row: Mapped[int] = mapped_column(BigInteger)
    class_index: Mapped[int] = mapped_column(Integer)
    kind: Mapped[int] = mapped_column(SmallInteger)
    probability: Mapped[float | None] = mapped_column(Float(53))
    observed: Mapped[int] = mapped_column(SmallInteger, default=0)
    rank: Mapped[int] = mapped_column(Integer, default=0)
    bin: Mapped[int] = mapped_column(SmallInteger, default=-1)
    gain: Mapped[float] = mapped_column(Float(53), default=0.0)
    priority: Mapped[float] = mapped_column(Float(53), default=0.0)
    state: Mapped[int] = mapped_column(SmallInteger, default=OPEN)
    needed: Mapped[int] = mapped_column(SmallInteger, default=1)
    first_by: Mapped[int | None] = mapped_column(Integer)
    value: Mapped[int | None] = mapped_column(SmallInteger)
    conflict: Mapped[bool] = mapped_column(default=False)
    loaded: Mapped[int] = mapped_column(Integer, default=0)
    leased_by: Mapped[str | None] = mapped_column(String(80))
    leased_until: Mapped[float | None] = mapped_column(Float(53))


#: Settled as yes or no. Spelled out, because with a bound parameter neither database would use the index below.
DECIDED = text("item.value <> 0")

#: The indexes of `item` that a first load builds after its rows.
ITEM_INDEXES = (
    Index("ix_item_class", Item.kind, Item.class_index, Item.state, Item.priority, Item.id),
    Index("ix_item_all", Item.kind, Item.state, Item.priority, Item.id),
    Index("ix_item_lease", Item.leased_by, sqlite_where=HELD, postgresql_where=HELD),
    Index("ix_item_conflict", Item.class_index, sqlite_where=text("conflict = 1"), postgresql_where=text("conflict")),
    Index("ix_item_value", Item.id, sqlite_where=text("value <> 0"), postgresql_where=text("value <> 0")),
)


class Reviewer(Base):
    __tablename__ = "reviewer"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str] = mapped_column(String(80), unique=True)
    created_at: Mapped[float] = mapped_column(Float(53))


class Session(Base):
    __tablename__ = "session"
    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    reviewer_id: Mapped[int] = mapped_column(ForeignKey("reviewer.id"))
    expires_at: Mapped[float] = mapped_column(Float(53))


class Action(Base):
    __tablename__ = "action"
    id: Mapped[int] = mapped_column(Key, primary_key=True)
    reviewer_id: Mapped[int] = mapped_column(ForeignKey("reviewer.id"))
    request_id: Mapped[str] = mapped_column(String(64))
    holder: Mapped[str] = mapped_column(String(80))
    kind: Mapped[str] = mapped_column(String(16))
    undone: Mapped[bool] = mapped_column(default=False)
    at: Mapped[float] = mapped_column(Float(53))
    digest: Mapped[str] = mapped_column(String(64))
    response: Mapped[str] = mapped_column(Text, default="")
    __table_args__ = (
        UniqueConstraint("reviewer_id", "request_id"),
        Index("ix_action_holder", "holder", "id"),
    )


class Event(Base):
    __tablename__ = "event"
    id: Mapped[int] = mapped_column(Key, primary_key=True)
    action_id: Mapped[int] = mapped_column(ForeignKey("action.id"), index=True)
    item_id: Mapped[int] = mapped_column(BigInteger, index=True)
    reviewer_id: Mapped[int] = mapped_column(ForeignKey("reviewer.id"))
    kind: Mapped[str] = mapped_column(String(16))
    value: Mapped[int | None] = mapped_column(SmallInteger)
    previous: Mapped[int | None] = mapped_column(SmallInteger)
    note: Mapped[str | None] = mapped_column(Text)
    at: Mapped[float] = mapped_column(Float(53))


class Answer(Base):
    __tablename__ = "answer"
    item_id: Mapped[int] = mapped_column(Key, primary_key=True, autoincrement=False)
    reviewer_id: Mapped[int] = mapped_column(ForeignKey("reviewer.id"), primary_key=True)
    value: Mapped[int] = mapped_column(SmallInteger)
    at: Mapped[float] = mapped_column(Float(53))
    __table_args__ = (Index("ix_answer_reviewer", "reviewer_id", "item_id"),)


class Tally(Base):
    __tablename__ = "tally"
    kind: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    class_index: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    bin: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    total: Mapped[int] = mapped_column(BigInteger, default=0)
    done: Mapped[int] = mapped_column(BigInteger, default=0)
    confirmed: Mapped[int] = mapped_column(BigInteger, default=0)
    refuted: Mapped[int] = mapped_column(BigInteger, default=0)
    unsure: Mapped[int] = mapped_column(BigInteger, default=0)
    gain: Mapped[float] = mapped_column(Float(53), default=0.0)


class Training(Base):
    __tablename__ = "training"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    reviewer_id: Mapped[int] = mapped_column(ForeignKey("reviewer.id"))
    command: Mapped[str] = mapped_column(Text)
    status: Mapped[str] = mapped_column(String(16))
    exit_code: Mapped[int | None] = mapped_column(Integer)
    started_at: Mapped[float] = mapped_column(Float(53))
    ended_at: Mapped[float | None] = mapped_column(Float(53))
    log: Mapped[str] = mapped_column(Text)
