"""Endpoints: signing in, handing out, answering, counting."""

# no postponed annotations: FastAPI reads these, and they name things of the enclosing function
import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import JSONResponse, Response
from sqlalchemy import Connection, func, select
from starlette.exceptions import HTTPException

from onelabel.review import progress, schemas
from onelabel.review.answers import record, undo
from onelabel.review.change import Said
from onelabel.review.database import Database
from onelabel.review.models import DOUBT, MISSING, Klass, Reviewer
from onelabel.review.pictures import Thumbnails
from onelabel.review.queue import Filters, Who, audit_left, lease_items, lease_picture, release, renew
from onelabel.review.retrain import Trainer
from onelabel.review.security import SESSION_SECONDS, Gate, TooMany
from onelabel.review.settings import Settings

Tab = Annotated[str, Header(alias="X-Onelabel-Tab", pattern=schemas.TAB, description="One browser tab")]


@dataclass
class Services:
    """What the endpoints share."""

    db: Database
    settings: Settings
    roots: tuple[Path, ...]
    gate: Gate
    trainer: Trainer
    thumbnails: Thumbnails
    #: pictures are decoded here, so that they never take the threads that store answers
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2, thread_name_prefix="picture"))

    #: when agreement was last counted, and what it was: a walk over all answers, not for every request
    counted: tuple[float, dict[str, Any]] = field(default_factory=lambda: (float("-inf"), {}))

    def agreement(self, connection: Connection) -> dict[str, Any]:
        """Agreement of at most ten seconds ago."""
        if time.monotonic() - self.counted[0] > 10:
            self.counted = (time.monotonic(), progress.agreement(connection))
        return self.counted[1]

    async def who(self, request: Request) -> int | None:
        """The reviewer who asks, or None."""
        secret = request.cookies.get(self.gate.cookie)
        known = self.gate.remembered(secret)
        if known is not None or not secret:
            return known if known is not None else self.gate.default
        return await asyncio.to_thread(self.gate.reviewer, secret)

    async def need(self, request: Request) -> int:
        """The reviewer who asks; 401 for a stranger."""
        who = await self.who(request)
        if who is None:
            raise HTTPException(401, "sign in first")
        return who


def make_router(services: Services) -> APIRouter:
    """The endpoints under /api that read and write JSON."""
    router = APIRouter(prefix="/api")
    db, gate, seconds = services.db, services.gate, services.settings.lease_seconds
    Reviewer_ = Annotated[int, Depends(services.need)]

    @router.get("/me", response_model=schemas.Me)
    async def me(request: Request) -> Any:
        """Who asks, and what the page may offer."""
        reviewer = await services.who(request)
        return await asyncio.to_thread(_me, services, reviewer)

    @router.post("/session", response_model=schemas.Me)
    def sign_in(body: schemas.SignIn, request: Request) -> Response:
        """Sign in; the session is a cookie."""
        address = request.client.host if request.client else ""
        try:
            secret = gate.sign_in(body.name, body.token, address)
        except TooMany:
            raise HTTPException(429, "too many wrong tokens; wait a minute") from None
        if secret is None:
            raise HTTPException(401, "the token is wrong")
        response = JSONResponse(_me(services, gate.reviewer(secret)))
        options = {"httponly": True, "samesite": "strict", "secure": services.settings.secure}
        response.set_cookie(gate.cookie, secret, max_age=SESSION_SECONDS, path="/", **options)  # type: ignore[arg-type]
        return response

    @router.delete("/session", status_code=204)
    def sign_out(request: Request) -> Response:
        """Forget the session."""
        gate.sign_out(request.cookies.get(gate.cookie))
        response = Response(status_code=204)
        response.delete_cookie(gate.cookie, path="/")
        return response

    @router.get("/classes", response_model=schemas.Classes)
    def classes(
        _: Reviewer_,
        kind: Literal["missing", "doubt"] = "missing",
        search: Annotated[str, Query(max_length=200, pattern=schemas.PLAIN)] = "",
        limit: Annotated[int, Query(ge=1, le=1000)] = 200,
        offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    ) -> Any:
        """Classes by the gain still expected."""
        with db.read() as connection:
            return progress.classes(connection, DOUBT if kind == "doubt" else MISSING, search, limit, offset)

    @router.post("/queue", response_model=schemas.Items)
    def queue(body: schemas.QueueIn, reviewer: Reviewer_, tab: Tab) -> Any:
        """Hand out items to this tab; what it holds beyond them is given back."""
        filters = Filters(body.class_index, body.low, body.high, body.disagreement)
        return JSONResponse({"items": lease_items(db, Who(reviewer, tab), filters, body.count, seconds)})

    @router.post("/audit", response_model=schemas.AuditOut)
    def audit(body: schemas.AuditIn, reviewer: Reviewer_, tab: Tab) -> Any:
        """Hand out a picture of the audit to this tab."""
        picture = lease_picture(db, Who(reviewer, tab), seconds, body.skip)
        with db.read() as connection:
            total, done = audit_left(connection)
        return JSONResponse({"picture": picture, "total": total, "done": done})

    @router.post("/leases", response_model=schemas.Held)
    def leases(body: schemas.LeaseIn, reviewer: Reviewer_, tab: Tab) -> Any:
        """Renew or release what this tab holds."""
        who = Who(reviewer, tab)
        return {"held": renew(db, who, seconds) if body.action == "renew" else release(db, who)}

    @router.post("/answers", response_model=schemas.Recorded)
    def answers(body: schemas.AnswersIn, reviewer: Reviewer_, tab: Tab) -> Any:
        """Store answers; safe to repeat with the same request id."""
        said = [Said(a.item, a.answer, a.note, a.revise) for a in body.answers]
        return JSONResponse(record(db, Who(reviewer, tab), body.request_id, said))

    @router.post("/undo", response_model=schemas.Undone)
    def take_back(body: schemas.UndoIn, reviewer: Reviewer_, tab: Tab) -> Any:
        """Undo this tab's last action that stands; safe to repeat with the same request id."""
        return JSONResponse(undo(db, Who(reviewer, tab), body.request_id, seconds))

    @router.get("/progress")
    def overall(
        _: Reviewer_, class_index: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None, people: bool = False
    ) -> dict[str, Any]:
        """Progress and precision of all, or of one class; with `people` also agreement and the audit."""
        with db.read() as connection:
            result = progress.overall(connection, class_index)
            if people:
                result["team"] = progress.team(connection, services.agreement(connection))
            return result

    @router.get("/history")
    def history(
        _: Reviewer_,
        before: Annotated[int | None, Query(ge=0, le=schemas.BIG)] = None,
        item: Annotated[int | None, Query(ge=0, le=schemas.BIG)] = None,
        limit: Annotated[int, Query(ge=1, le=500)] = 100,
    ) -> dict[str, Any]:
        """The audit trail, newest first."""
        with db.read() as connection:
            return {"events": progress.history(connection, before, item, limit)}

    return router


def _me(services: Services, reviewer: int | None) -> dict[str, Any]:
    with services.db.read() as connection:
        name = connection.execute(select(Reviewer.name).where(Reviewer.id == reviewer)).scalar() if reviewer else None
        audit, _ = audit_left(connection) if reviewer else (0, 0)
        count = connection.execute(select(func.count()).select_from(Klass)).scalar_one() if reviewer else 0
    return {
        "name": name,
        "needs_token": services.settings.token is not None,
        "lease_seconds": services.settings.lease_seconds,
        "retrain": bool(services.settings.retrain),
        "audit": audit > 0,
        "classes": count,
    }
