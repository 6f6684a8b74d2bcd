"""A server that listens: connections that bring no request are ended, or one client could take all there are."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed (pip install 'splitveil[serve]')")

import uvicorn
from tests.worlds.small_artefact import write_small_artefact

from splitveil.serving import running
from splitveil.serving.artefact import read
from splitveil.serving.cloud import build_app

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def address(tmp_path, monkeypatch) -> Iterator[tuple[str, int]]:
    """A server in a thread, which gives a head half a second."""
    monkeypatch.setattr(running, "HEAD_SECONDS", 0.5)
    servers: list[uvicorn.Server] = []
    said: list[str] = []
    real = running._run

    def run(server: uvicorn.Server, listener: socket.socket) -> None:
        servers.append(server)
        real(server, listener)

    monkeypatch.setattr(running, "_run", run)
    write_small_artefact(tmp_path / "artefact")
    app = build_app(read(tmp_path / "artefact"))
    place = running.Place(port=0)
    thread = threading.Thread(target=running.serve, args=(app, place, str, said.append))
    thread.start()
    end = time.monotonic() + 60  # only there so that a broken test ends
    while not (servers and servers[0].started) and time.monotonic() < end:
        time.sleep(0.01)
    yield "127.0.0.1", int(said[0].rpartition(":")[2])
    servers[0].should_exit = True
    thread.join(60)


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


def received(connection: socket.socket) -> bytes:
    """All that comes until the server ends the connection."""
    found = b""
    while piece := connection.recv(4096):
        found += piece
    return found


@pytest.mark.parametrize(
    ("sent", "answers"),
    [
        (b"", 0),
        (HEALTH, 0),  # the empty line that ends a head is missing
        (HEALTH + b"\r\n" + HEALTH, 1),
    ],
)
def test_a_connection_without_a_request_is_ended(address, sent, answers):
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(sent)
        assert received(connection).count(b"200 OK") == answers


def test_drops_of_a_head_do_not_keep_a_connection(address):
    """Whoever sends a byte now and then never ends a head."""
    left = 3000
    with socket.create_connection(address, timeout=60) as connection, suppress(ConnectionError):
        connection.sendall(HEALTH + b"X: ")
        while left := left - 1:
            connection.sendall(b"x")
            time.sleep(0.02)
    assert left, "it was never ended"


def test_a_request_under_way_is_left_alone(address):
    """A body has a patience of its own (Settings), which is longer."""
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(b"POST /v1/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nx")
        time.sleep(1.5)  # three times what a head may take
        connection.sendall(b"y")
        assert received(connection).startswith(b"HTTP/1.1 400")
