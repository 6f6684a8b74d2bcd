"""How much a request may send: settings are small, so a large body is refused before it fills the memory."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_BODY = 2**20  # the largest recipe has a few kilobytes
UPLOADS = frozenset({"/api/leak/picture"})  # read in pieces, with a limit of their own
TOO_LARGE = f"The request has more than {LARGEST_BODY // 2**20} MB."


class BodyLimit:
    """Wraps an app. Both the announced length and the bytes that really come are looked at."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in UPLOADS:
            await self.app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdecimal() and (len(announced) > 12 or int(announced) > LARGEST_BODY):
            await JSONResponse({"error": TOO_LARGE, "hint": ""}, status_code=413)(scope, receive, send)
            return
        came = 0

        async def counted() -> Message:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            if came > LARGEST_BODY:
                raise HTTPException(413, TOO_LARGE)
            return message

        await self.app(scope, counted, send)
