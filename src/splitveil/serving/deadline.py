"""A socket for exchanges that must end in time, as a whole.

A socket's own limit is for each piece that comes or goes: a server that sends the head of its answer letter by letter
meets it for ever.
"""

from __future__ import annotations

import io
import socket
import time
from typing import Any


class TimedSocket:
    """As much of a socket as http.client needs. `until` is when the exchange must be over, by time.monotonic()."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.until = sock, 0.0

    def sendall(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            self.hurry()
            left = left[self.sock.send(left) :]

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self))

    def close(self) -> None:
        self.sock.close()

    def hurry(self) -> None:
        """Give the next piece what is left of the time; TimeoutError where nothing is."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.sock.settimeout(left)


class _TimedReader(io.RawIOBase):
    """The bytes that come, each piece in what is left of the time."""

    def __init__(self, timed: TimedSocket) -> None:
        super().__init__()
        # the socket's own reader keeps it open until this one is closed, also where http.client has done with it
        self._timed, self._pieces = timed, timed.sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._timed.hurry()
        return self._pieces.readinto(buffer)

    def close(self) -> None:
        self._pieces.close()
        super().close()
