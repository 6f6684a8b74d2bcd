"""What the servers of both halves share: who may ask, how much may come, errors of one sentence, health and numbers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from splitveil.core.errors import InputError, ServingError, SplitveilError
from splitveil.core.listening import LOOPBACK, bears_token, check_token, host_name
from splitveil.serving.artefact import Artefact
from splitveil.serving.batching import BusyError
from splitveil.serving.exchange import FEATURES, HEALTH, INFER, MANIFEST, METRICS, OtherArtefactError
from splitveil.serving.metrics import Metrics

log = logging.getLogger("splitveil.serving")

QUIET_SECONDS = 60.0  # between two lines of the log about requests that may not ask
ANSWERING = frozenset({INFER, FEATURES})  # the routes whose requests are counted and timed
ROUTING = {
    404: ("There is no such route.", f"GET {MANIFEST} says what is served here."),
    405: ("This route takes another method.", "Send messages with POST, and ask for everything else with GET."),
}
STATUS = {OtherArtefactError: 409, BusyError: 503, InputError: 400}  # the first that fits; any other is our own fault
Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


@dataclass(frozen=True)
class Settings:
    """How a half is served. `hosts` are the names it answers to without a token; None: any."""

    token: str | None = None
    max_batch: int = 64
    max_wait_ms: float = 0.0
    max_waiting: int = 4096
    max_message_bytes: int = 16 << 20
    patience_seconds: float = 30.0  # how long a message may take to arrive
    threads: int = 1
    hosts: frozenset[str] | None = LOOPBACK

    def __post_init__(self) -> None:
        if self.token is not None:
            check_token(self.token)


def build_service(
    artefact: Artefact, settings: Settings, serves: str, lifespan: Lifespan, manifest: dict[str, Any]
) -> FastAPI:
    """An app with all but the route that gives answers; `app.state.metrics` counts, `manifest` is told to who asks."""
    app = FastAPI(
        title=f"Splitveil {serves}",
        lifespan=lifespan,
        docs_url=None,  # the pages of the documentation would load scripts from elsewhere
        redoc_url=None,
        openapi_url=None,
        middleware=[Middleware(Gate, settings=settings)],
    )
    metrics, app.state.settings = Metrics(), settings
    app.state.metrics = metrics
    about = {
        "artefact": artefact.digest.hex(),
        "serves": serves,
        "max_message_bytes": settings.max_message_bytes,
        "manifest": manifest,
    }
    app.add_api_route(HEALTH, lambda: {"status": "ok"}, methods=["GET"])
    app.add_api_route(MANIFEST, lambda: about, methods=["GET"])
    app.add_api_route(METRICS, lambda: PlainTextResponse(metrics.text()), methods=["GET"])

    app.add_exception_handler(SplitveilError, _known)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unknown)
    return app


class RefusedError(ServingError):
    """A request that is refused with an HTTP status of its own."""

    def __init__(self, status: int, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.status = status


def _known(_: Request, error: Exception) -> Response:
    assert isinstance(error, SplitveilError)
    status = next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)
    return refusal(getattr(error, "status", status), error.message, error.hint)


def _http(_: Request, error: Exception) -> Response:
    """What the framework itself refuses, in words of ours."""
    assert isinstance(error, HTTPException)
    return refusal(error.status_code, *ROUTING.get(error.status_code, (str(error.detail),)))


def _unknown(_: Request, error: Exception) -> Response:
    log.error("a request failed", exc_info=error)  # the handler runs outside of the except block
    return refusal(500, f"This is an error in Splitveil: {type(error).__name__}.", "The server's log tells more.")


async def body(request: Request, settings: Settings) -> bytes:
    """What the request carries, read in pieces: neither too much nor for too long."""
    try:
        async with asyncio.timeout(settings.patience_seconds):
            return b"".join([piece async for piece in _pieces(request, settings.max_message_bytes)])
    except TimeoutError:
        raise RefusedError(408, "The message did not arrive in time.", "Send fewer pictures at once.") from None
    except ClientDisconnect:  # nobody will read this; but it is counted, and it is no fault of the server
        raise RefusedError(400, "The client hung up before the message was complete.") from None


async def _pieces(request: Request, limit: int) -> AsyncIterator[bytes]:
    """The announced length is believed where it is too large; what really comes is counted."""
    too_large = RefusedError(
        413, f"The message has more than the {limit} bytes that this server takes.", "Send fewer pictures at once."
    )
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and (len(announced) > 12 or int(announced) > limit):
        raise too_large
    came = 0
    async for piece in request.stream():
        came += len(piece)
        if came > limit:
            raise too_large
        yield piece


def refusal(status: int, message: str, hint: str = "") -> Response:
    """One sentence that says what is wrong, and one that says what to do."""
    # what was not read of a refused message must not be taken for the next request
    headers = {"Connection": "close"} if status in {408, 413} else {}
    headers |= {"Retry-After": "1"} if status == 503 else {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return JSONResponse({"error": message, "hint": hint}, status, headers)


class Gate:
    """Around the whole app: who may ask, and how long answers take.

    With a token everything but /healthz needs it. Without one, only names of this machine are answered: a web page that
    rebinds its own name to 127.0.0.1 still sends that name.
    """

    def __init__(self, app: ASGIApp, *, settings: Settings) -> None:
        self.app, self.settings = app, settings
        self._told = -QUIET_SECONDS  # when the log last had a line about refusals
        self._since = 0  # refusals that it does not have

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # there are no websockets here; start and stop of the server pass
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        began, path = time.monotonic(), scope["path"]

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start" and path in ANSWERING:
                metrics: Metrics = scope["app"].state.metrics
                metrics.request(message["status"], time.monotonic() - began)
            await send(message)

        why = None if path == HEALTH else self._why_not(Headers(scope=scope))
        if why is not None:
            self._refused(scope["app"].state.metrics, began, why[1])
        await (self.app if why is None else refusal(*why))(scope, receive, counted)

    def _refused(self, metrics: Metrics, now: float, why: str) -> None:
        """Count it; a line in the log now and then, because whoever guesses tokens must not fill a disk."""
        metrics.refuse()
        self._since += 1
        if now - self._told >= QUIET_SECONDS:
            log.warning("refused %d requests since the last such line: %s", self._since, why)
            self._told, self._since = now, 0

    def _why_not(self, headers: Headers) -> tuple[int, str, str] | None:
        token, hosts = self.settings.token, self.settings.hosts
        if token is None:
            name = host_name(headers.get("host", ""))
            if hosts is None or name in hosts:
                return None
            return (
                403,
                f"This server does not answer to the name '{name}'.",
                "Without a token it takes local names alone.",
            )
        if bears_token(headers.get("authorization", ""), token):
            return None
        return (
            401,
            "This server needs its token, and none or another one came.",
            "Send it as Authorization: Bearer TOKEN.",
        )
