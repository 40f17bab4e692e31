"""Endpoints: pictures, the export, retraining."""

# no postponed annotations: FastAPI reads these, and they name things of the enclosing function
import asyncio
import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Request
from fastapi import Path as InPath
from fastapi.responses import Response, StreamingResponse
from sqlalchemy import select
from starlette.exceptions import HTTPException

from onelabel.review.export import export_file
from onelabel.review.models import Picture
from onelabel.review.pictures import NoPicture, safe_path
from onelabel.review.routes import Services
from onelabel.review.schemas import BIG, Empty

_PARQUET = "application/vnd.apache.parquet"


def make_files_router(services: Services) -> APIRouter:
    """The endpoints under /api that send something else than JSON, or run something."""
    router = APIRouter(prefix="/api")
    db, trainer = services.db, services.trainer
    Reviewer_ = Annotated[int, Depends(services.need)]

    def load(row: int, size: str, etag: str | None) -> tuple[str, bytes | None]:
        with db.read() as connection:
            example = connection.execute(select(Picture.example).where(Picture.row == row)).scalar()
        if example is None:
            raise NoPicture(404, "there is no such row")
        path = safe_path(example, services.roots)
        key = f'"{services.thumbnails.key(path, size)}"'
        return key, None if etag == key else services.thumbnails.get(path, size)

    @router.get(
        "/pictures/{row}/image",
        response_class=Response,
        responses={200: {"content": {"image/jpeg": {}}}, 304: {"description": "As the browser has it"}},
    )
    async def picture(
        _: Reviewer_,
        row: Annotated[int, InPath(ge=0, le=BIG)],
        size: Literal["thumb", "preview", "zoom"] = "thumb",
        if_none_match: Annotated[str | None, Header()] = None,
    ) -> Response:
        """A picture of the dataset as JPEG."""
        try:
            key, data = await asyncio.get_running_loop().run_in_executor(services.pool, load, row, size, if_none_match)
        except NoPicture as error:
            raise HTTPException(error.status, str(error)) from None
        headers = {"etag": key, "cache-control": "private, max-age=3600"}
        if data is None:
            return Response(status_code=304, headers=headers)
        return Response(data, media_type="image/jpeg", headers=headers)

    @router.get("/export", response_class=Response, responses={200: {"content": {_PARQUET: {}}}})
    def export(_: Reviewer_) -> Response:
        """The settled answers as Parquet."""
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "reviewed.parquet"
            export_file(db, target)
            data = target.read_bytes()
        headers = {"content-disposition": 'attachment; filename="reviewed.parquet"'}
        return Response(data, media_type=_PARQUET, headers=headers)

    @router.get("/retrain")
    def latest(_: Reviewer_) -> dict[str, Any]:
        """The newest training, if any."""
        return {"training": trainer.latest()}

    @router.post("/retrain")
    def start(_: Empty, reviewer: Reviewer_) -> dict[str, Any]:
        """Train on the answers so far, with the command the server was started with."""
        return {"training": trainer.start(reviewer)}

    @router.post("/retrain/cancel")
    def cancel(_: Empty, reviewer: Reviewer_) -> dict[str, bool]:
        """Stop the running training; whether there was one."""
        return {"cancelled": trainer.cancel()}

    @router.get(
        "/retrain/events",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}}},
    )
    async def events(
        _: Reviewer_,
        request: Request,
        last_event_id: Annotated[int, Header(ge=0, le=BIG)] = 0,
    ) -> StreamingResponse:
        """The newest training's log and status as server-sent events, until it ends."""
        return StreamingResponse(trainer.follow(last_event_id), media_type="text/event-stream")

    return router
