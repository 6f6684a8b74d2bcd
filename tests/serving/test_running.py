"""A server that listens: connections that bring no request are ended, or one client could take all there are."""

from __future__ import annotations

import asyncio
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed (pip install 'splitveil[serve]')")

import uvicorn
from tests.worlds.small_artefact import write_small_artefact

from splitveil.serving import running
from splitveil.serving.artefact import read
from splitveil.serving.cloud import build_app
from splitveil.serving.service import Settings

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
PATIENCE = 240  # seconds; only there so that a broken test ends


class Visit(running.Connection):
    """A connection whose time passes when a test says so, not by the clock: a busy machine may stand still."""

    def __init__(self, visits: queue.SimpleQueue[Visit], *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.visits = visits
        self.clock, self.loop = self.loop, self
        self.due: list[Callable[[], None]] = []
        self.read = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.clock, name)  # all else that is asked of the loop

    def call_later(self, seconds: float, function: Callable[..., None], *args: Any) -> Any:
        if seconds != running.HEAD_SECONDS:
            return self.clock.call_later(seconds, function, *args)
        self.due.append(partial(function, *args))
        return None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.visits.put(self)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.read += data

    def pass_time(self) -> None:
        """As long as a head may take."""
        done = threading.Event()

        def look() -> None:
            due, self.due = self.due, []
            for one in due:
                one()
            done.set()

        self.clock.call_soon_threadsafe(look)
        assert done.wait(PATIENCE)


class Client:
    """One connection to the server, and the server's side of it."""

    def __init__(self, connection: socket.socket, visit: Visit) -> None:
        self.connection, self.visit = connection, visit

    def send(self, data: bytes) -> None:
        """Returns when the server has read it."""
        end, wanted = time.monotonic() + PATIENCE, self.visit.read + data
        self.connection.sendall(data)
        while self.visit.read != wanted:
            assert time.monotonic() < end
            time.sleep(0.001)

    def received(self) -> bytes:
        """All that comes until the server ends the connection."""
        found = b""
        while piece := self.connection.recv(4096):
            found += piece
        return found


@pytest.fixture
def client(tmp_path, monkeypatch) -> Iterator[Client]:
    """A server in a thread, and a visitor."""
    servers: list[uvicorn.Server] = []
    visits: queue.SimpleQueue[Visit] = queue.SimpleQueue()
    said: list[str] = []
    real = running._run

    def run(server: uvicorn.Server, listener: socket.socket) -> None:
        servers.append(server)
        real(server, listener)

    monkeypatch.setattr(running, "_run", run)
    monkeypatch.setattr(running, "Connection", partial(Visit, visits))
    write_small_artefact(tmp_path / "artefact")
    app = build_app(read(tmp_path / "artefact"), Settings(patience_seconds=PATIENCE))
    thread = threading.Thread(target=running.serve, args=(app, running.Place(port=0), str, said.append))
    thread.start()
    end = time.monotonic() + PATIENCE
    while not (servers and servers[0].started) and time.monotonic() < end:
        time.sleep(0.01)
    try:
        with socket.create_connection(("127.0.0.1", int(said[0].rpartition(":")[2])), PATIENCE) as connection:
            yield Client(connection, visits.get(timeout=PATIENCE))
    finally:
        servers[0].should_exit = True
        thread.join(PATIENCE)


@pytest.mark.parametrize(
    ("place", "with_token", "says"),
    [
        (running.Place(), False, []),
        (running.Place("::1"), False, []),
        (running.Place("0.0.0.0"), True, ["open to other machines", "what devices send, and their token"]),
        (running.Place("192.0.2.1"), False, ["listens on 192.0.2.1", "can read what devices send", "may ask"]),
        (running.Place("::", certificate=Path("c"), key=Path("k")), True, ["::, every address of this machine"]),
        (running.Place("::", certificate=Path("c"), key=Path("k")), False, ["every address", "without a token"]),
    ],
)
def test_who_can_reach_a_server_is_said(place, with_token, says):
    found = running.exposed(place, with_token=with_token)
    assert len(found) == len(says)
    assert all(words in line for words, line in zip(says, found, strict=True))
    assert with_token or not any("their token" in line for line in found)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        HEALTH,  # the empty line that ends a head is missing
    ],
)
def test_a_connection_without_a_request_is_ended(client, sent):
    client.send(sent)
    client.visit.pass_time()
    assert client.received() == b""


def test_a_connection_without_a_second_request_is_ended(client):
    client.send(HEALTH + b"\r\n")
    answer = client.connection.recv(4096)
    while not answer.endswith(b'{"status":"ok"}'):
        answer += client.connection.recv(4096)
    client.send(HEALTH)
    client.visit.pass_time()  # a request began in it
    assert not client.visit.transport.is_closing()
    client.visit.pass_time()
    assert client.received() == b""


def test_drops_of_a_head_do_not_keep_a_connection(client):
    """Whoever sends a byte now and then never ends a head."""
    client.send(HEALTH + b"X: ")
    for _ in range(3):
        client.send(b"x")
    client.visit.pass_time()
    assert client.received() == b""


def test_a_request_under_way_is_left_alone(client):
    """A body has a patience of its own (Settings), which is longer."""
    client.send(b"POST /v1/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nx")
    for _ in range(3):
        client.visit.pass_time()
    client.send(b"y")
    assert client.connection.recv(4096).startswith(b"HTTP/1.1 400")
