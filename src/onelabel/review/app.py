"""The web application."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from onelabel import __version__
from onelabel.review.answers import RequestReused
from onelabel.review.database import Database
from onelabel.review.load import get_meta
from onelabel.review.pictures import Thumbnails
from onelabel.review.retrain import Busy, Trainer
from onelabel.review.routes import Services, make_router
from onelabel.review.routes_files import make_files_router
from onelabel.review.schemas import Problem
from onelabel.review.security import Gate, Guard
from onelabel.review.settings import Settings

STATIC = Path(__file__).parent / "static"


def create_app(settings: Settings, db: Database | None = None) -> FastAPI:
    """The review server of one database, which must have been loaded (`onelabel.review.load`)."""
    database = db or Database(settings.db)
    with database.read() as connection:
        instance = str(get_meta(connection, "instance"))
        root = get_meta(connection, "root")
    roots = settings.roots or ((Path(root),) if root else ())
    # Thumbnails are hidden: beside class folders they would be found as pictures of a class.
    services = Services(
        db=database,
        settings=settings,
        roots=roots,
        gate=Gate(database, settings, instance),
        trainer=Trainer(database, settings),
        thumbnails=Thumbnails(settings.folder / ".thumbs", settings.cache_bytes),
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        warming = asyncio.create_task(asyncio.to_thread(_warm))
        yield
        await warming
        await asyncio.to_thread(services.trainer.cancel)
        services.pool.shutdown(wait=False, cancel_futures=True)
        database.close()

    app = FastAPI(
        title="onelabel review",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses={
            400: {"model": Problem, "description": "An unknown host, or a body that is not JSON"},
            401: {"model": Problem, "description": "Sign in first"},
            403: {"model": Problem, "description": "A write from elsewhere"},
            404: {"model": Problem, "description": "Not found"},
            409: {"model": Problem, "description": "In conflict with what is stored or running"},
            411: {"model": Problem, "description": "A body without its length"},
            413: {"model": Problem, "description": "A body too long"},
            422: {"model": Problem, "description": "Not as described here"},
            429: {"model": Problem, "description": "Too many wrong tokens"},
        },
    )
    app.add_middleware(Guard, settings=settings)
    app.include_router(make_router(services))
    app.include_router(make_files_router(services))
    app.mount("/static", StaticFiles(directory=STATIC), name="static")

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})

    @app.get("/favicon.ico", include_in_schema=False)
    async def icon() -> FileResponse:
        return FileResponse(STATIC / "icon.svg", media_type="image/svg+xml")

    @app.get("/healthz")
    async def alive() -> dict[str, str]:
        """Whether the server answers."""
        return {"status": "ok"}

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        # without the input, which may be no legal JSON (NaN, half a surrogate pair)
        keys = ("loc", "msg", "type")
        problems = [{key: _plain(e[key]) for key in keys} for e in error.errors()]
        return JSONResponse({"detail": problems}, 422)

    @app.exception_handler(RequestReused)
    @app.exception_handler(Busy)
    async def conflict(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 409)

    @app.exception_handler(HTTPException)
    async def problem(request: Request, error: HTTPException) -> JSONResponse:
        headers = {"allow": _allowed(app, request)} if error.status_code == 405 else error.headers
        return JSONResponse({"detail": str(error.detail)}, error.status_code, headers=headers)

    return app


def _allowed(app: FastAPI, request: Request) -> str:
    """Every method of the asked path; Starlette names those of the first route only."""
    paths = app.openapi()["paths"]
    for template, operations in paths.items():
        parts, asked = template.split("/"), request.url.path.split("/")
        if len(parts) == len(asked) and all(p == a or p.startswith("{") for p, a in zip(parts, asked, strict=True)):
            return ", ".join(sorted(method.upper() for method in operations))
    return "GET, HEAD"


def _plain(value: object) -> object:
    """Places as lists of words, and words without the halves of surrogate pairs that no encoding can write."""
    parts = [
        str(part).encode("utf-8", "replace").decode() for part in (value if isinstance(value, tuple) else (value,))
    ]
    return parts if isinstance(value, tuple) else parts[0]


def _warm() -> None:
    """Import the picture reader before the first picture is asked for; without it pictures are not shown."""
    with contextlib.suppress(ImportError):
        import onelabel.data.images  # noqa: F401
