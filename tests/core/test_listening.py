"""Addresses that servers listen on, and tokens."""

from __future__ import annotations

import asyncio
import socket

import pytest

from splitveil.core.errors import UsageError
from splitveil.core.listening import check_token, is_loopback, listen, read_token, shown_host


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", True), ("127.0.0.9", True), ("::1", True), ("[::1]", True), ("0.0.0.0", False), ("::", False)],
)
def test_loopback(host, expected):
    assert is_loopback(host) is expected


def test_small_answers_leave_at_once():
    """asyncio turns Nagle's algorithm off only for sockets that name their protocol."""

    async def accepted() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def visited(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            own = writer.get_extra_info("socket")
            found.set_result(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listener = listen("127.0.0.1", 0)
        async with await asyncio.start_server(visited, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            value = await asyncio.wait_for(found, 60)
            writer.close()
            await writer.wait_closed()
        return value

    assert asyncio.run(accepted()) != 0


def test_tokens_come_from_a_file_or_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("SPLITVEIL_TOKEN", raising=False)
    assert read_token(None) is None
    monkeypatch.setenv("SPLITVEIL_TOKEN", "from-the-environment")
    (tmp_path / "token").write_text("from-the-file\n")
    assert read_token(None) == "from-the-environment"
    assert read_token(tmp_path / "token") == "from-the-file"


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "holds no token"), (b"short", "too short"), (b"\xff\xfe", "no text"), (b"two words here", "cannot carry")],
)
def test_bad_tokens(tmp_path, content, says):
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(UsageError, match=says):
        read_token(tmp_path / "token")


def test_a_good_token_passes():
    check_token("A-long_enough~token.1")


def test_hosts_as_people_write_them():
    assert [shown_host(host) for host in ("0.0.0.0", "::", "::1", "[::1]", "example.org")] == [
        "localhost", "localhost", "[::1]", "[::1]", "example.org",
    ]  # fmt: skip
