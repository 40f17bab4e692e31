"""What the endpoints take and give."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

BIG = 2**53 - 1  # what JavaScript counts exactly
PLAIN = r"^[^\x00-\x1f\x7f]*$"
TAB = r"^[A-Za-z0-9_-]{1,64}$"


def _whole(value: object) -> object:
    """JSON has one kind of number: 3.0 is as good as 3."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = BeforeValidator(_whole)
Number = Annotated[int, Field(ge=0, le=BIG, strict=True), Whole]
ClassIndex = Annotated[int, Field(ge=0, le=2**31 - 1, strict=True), Whole]
RequestId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{8,64}$")]
Share = Annotated[float, Field(ge=0, le=1, strict=True)]


class In(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SignIn(In):
    name: Annotated[str, Field(pattern=r"^[^\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f])?$", max_length=80)]
    token: Annotated[str, Field(max_length=1000, pattern=PLAIN)] | None = None


class QueueIn(In):
    class_index: ClassIndex | None = None
    low: Share = 0.0
    high: Share = 1.0
    disagreement: Literal["none", "model", "reviewers"] = "none"
    count: Annotated[int, Field(ge=1, le=200, strict=True), Whole] = 24


class AuditIn(In):
    skip: Number | None = None


class LeaseIn(In):
    action: Literal["renew", "release"]


class AnswerIn(In):
    item: Number
    answer: Literal["yes", "no", "unsure", "skip", "note"]
    note: Annotated[str, Field(max_length=2000, pattern=r"^[^\x00-\x08\x0b-\x1f\x7f]*$")] | None = None
    revise: Annotated[bool, Field(strict=True)] = False


class AnswersIn(In):
    request_id: RequestId
    answers: Annotated[list[AnswerIn], Field(min_length=1, max_length=500)]


class UndoIn(In):
    request_id: RequestId


class Empty(In):
    """An object without members."""


class Problem(BaseModel):
    detail: str | list[dict[str, Any]]


class Me(BaseModel):
    name: str | None
    needs_token: bool
    lease_seconds: float
    retrain: bool
    audit: bool
    classes: int


class ItemOut(BaseModel):
    id: int
    row: int
    example: str
    class_index: int
    class_name: str
    kind: Literal["missing", "doubt", "audit"]
    probability: float | None
    observed: int
    gain: float
    conflict: bool
    given: list[str]
    notes: list[str]


class Items(BaseModel):
    items: list[ItemOut]


class Result(BaseModel):
    item: int
    status: Literal["stored", "held", "settled", "unknown"]


class Recorded(BaseModel):
    results: list[Result]
    finished: list[int]


class Undone(BaseModel):
    undone: list[int]
    items: list[ItemOut]


class AuditClass(BaseModel):
    item: int
    class_index: int
    name: str
    answer: Literal["yes", "no", "unsure"] | None


class AuditPicture(BaseModel):
    row: int
    example: str
    given: list[str]
    classes: list[AuditClass]


class AuditOut(BaseModel):
    picture: AuditPicture | None
    total: int
    done: int


class Held(BaseModel):
    held: int


class Interval(BaseModel):
    value: float
    low: float
    high: float
    covered: float


class ClassOut(BaseModel):
    index: int
    name: str
    total: int
    done: int
    confirmed: int
    refuted: int
    unsure: int
    expected: float
    precision: Interval | None


class Classes(BaseModel):
    count: int
    classes: list[ClassOut]
