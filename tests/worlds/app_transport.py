"""A transport that calls an app in this process: no socket, the whole stack otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import FastAPI
from starlette.testclient import TestClient

from splitveil.serving.transport import Reply
from splitveil.serving.wire import MEDIA_TYPE


class AppTransport:
    """Remembers what was sent (`bodies`)."""

    address = "http://the-app"

    def __init__(self, client: TestClient) -> None:
        self.client = client
        self.bodies: list[bytes] = []

    def request(self, method: str, path: str, body: bytes = b"", token: str | None = None) -> Reply:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        if body:
            self.bodies.append(body)
            headers["Content-Type"] = MEDIA_TYPE
        answer = self.client.request(method, path, content=body, headers=headers)
        return Reply(answer.status_code, answer.headers["content-type"].partition(";")[0], answer.content)

    def close(self) -> None:
        pass


@contextmanager
def opened(app: FastAPI) -> Iterator[TestClient]:
    """The app, started; an error in it becomes status 500, as for a real client."""
    with TestClient(app, base_url="http://127.0.0.1:8750", raise_server_exceptions=False) as client:
        yield client
