"""What the page "what would leak?" asks for."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool

from splitveil.core.errors import DataError
from splitveil.web.leak.desk import Desk
from splitveil.web.leak.pictures import LARGEST_BYTES

leak = APIRouter(prefix="/api/leak")


def _desk(request: Request) -> Desk:
    return request.app.state.services.desk


@leak.get("/subject")
def subject(request: Request, id: str) -> dict[str, Any]:
    """Begin to open a run, or say how far it is."""
    return _desk(request).open(request.app.state.services.index.path(id)).facts()


@leak.get("/choices")
def choices(request: Request, id: str) -> list[dict[str, Any]]:
    return _desk(request).open(request.app.state.services.index.path(id)).choices()


@leak.post("/picture")
async def picture(request: Request) -> dict[str, str]:
    """The body is the file itself. It is refused as soon as it is too large, not after it has filled the memory."""
    content = bytearray()
    async for piece in request.stream():
        content += piece
        if len(content) > LARGEST_BYTES:
            raise DataError(f"The file has more than {LARGEST_BYTES // 2**20} MB.", "Use a smaller picture.")
    return await run_in_threadpool(_desk(request).upload, bytes(content))


class Look(BaseModel):
    """One slider move."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    id: str
    sigma: float
    upload: str | None = None
    test: int | None = None
    draw: int = 0


@leak.post("/look")
def look(request: Request, body: Look) -> dict[str, Any]:
    folder = request.app.state.services.index.path(body.id)
    return _desk(request).look(folder, upload=body.upload, test=body.test, sigma=body.sigma, draw=body.draw)
