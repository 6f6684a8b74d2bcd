"""The app: routes, the built page, and errors as one sentence."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from splitveil.core.errors import SplitveilError, UsageError
from splitveil.core.listening import LOOPBACK
from splitveil.web.guard import Guard
from splitveil.web.leak.routes import leak
from splitveil.web.limit import BodyLimit
from splitveil.web.routes import api, reports
from splitveil.web.services import Services

log = logging.getLogger("splitveil.web")

STATIC = Path(__file__).parent / "static"
# The page shares the look of the report, from the same file.
LOOK = Path(__file__).parents[1] / "report" / "assets" / "report.css"
FILES = {"app.js": "text/javascript", "app.css": "text/css", "icon.svg": "image/svg+xml"}


def create_app(root: Path, *, token: str | None = None, hosts: frozenset[str] | None = LOOPBACK) -> FastAPI:
    """The web app over the runs in `root`. `hosts` are the names it answers to (None: any, the token decides)."""
    if not root.is_dir():
        raise UsageError(f"There is no folder {root}.", "Give a folder with runs, or an empty one to start in.")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.services = Services(root)
        try:
            yield
        finally:
            app.state.services.close()

    app = FastAPI(
        title="Splitveil",
        lifespan=lifespan,
        docs_url=None,  # the pages of the documentation would load scripts from elsewhere
        redoc_url=None,
        openapi_url=None,
        middleware=[Middleware(Guard, token=token, hosts=hosts), Middleware(BodyLimit)],
    )
    app.include_router(api)
    app.include_router(leak)
    app.include_router(reports)
    app.add_api_route("/", _page, methods=["GET"], include_in_schema=False)
    app.add_api_route("/assets/{name}", _asset, methods=["GET"], include_in_schema=False)
    app.add_exception_handler(SplitveilError, _known)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unknown)
    return app


def _page() -> FileResponse:
    return FileResponse(STATIC / "index.html", media_type="text/html")


def _asset(name: str) -> FileResponse:
    if name == LOOK.name:
        return FileResponse(LOOK, media_type="text/css")
    if name not in FILES:
        raise HTTPException(404, "There is no such file.")
    return FileResponse(STATIC / "assets" / name, media_type=FILES[name])


def _answer(status: int, message: str, hint: str = "") -> JSONResponse:
    return JSONResponse({"error": message, "hint": hint}, status_code=status)


def _known(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, SplitveilError)
    return _answer(400, error.message, error.hint)


def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return _answer(422, f"{where}: {first['msg']}.")


def _http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return _answer(error.status_code, str(error.detail))


def _unknown(_: Request, error: Exception) -> JSONResponse:
    log.error("a request failed", exc_info=error)  # the handler runs outside of the except block
    return _answer(500, f"This is an error in Splitveil: {type(error).__name__}.", "The server's log tells more.")
