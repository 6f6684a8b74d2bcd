"""How a client's messages travel: over HTTP with the standard library alone, or to a cloud half in the same process.

A transport is a parameter of the client: tests pass one that calls the app directly.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Protocol, cast
from urllib.parse import urlsplit

from splitveil.core.errors import ServingError, UsageError
from splitveil.core.listening import is_loopback
from splitveil.serving.deadline import TimedSocket
from splitveil.serving.exchange import MANIFEST, artefact_id, received
from splitveil.serving.halves import CloudHalf
from splitveil.serving.wire import MEDIA_TYPE, Kind, encode

PIECE, LARGEST_ANSWER = 1 << 16, 64 << 20  # bytes: a server that sends without end must not fill the device's memory


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    media_type: str
    body: bytes


class TransportError(ServingError):
    """No answer came. `again`: the same request may succeed a moment later. `nobody`: no server is there."""

    def __init__(self, message: str, hint: str = "", *, again: bool = True, nobody: bool = False) -> None:
        super().__init__(message, hint)
        self.again, self.nobody = again, nobody


class Transport(Protocol):
    """Carries one request and brings its reply, or raises `TransportError`."""

    address: str

    def request(self, method: str, path: str, body: bytes = b"", token: str | None = None) -> Reply: ...

    def close(self) -> None: ...


class HttpTransport:
    """HTTP or HTTPS to one server, over one connection that is kept. No redirects are followed, no proxy is asked.

    `ca` is a file with the certificates to trust, instead of the system's. A token does not leave this machine in
    clear, unless `insecure` is true. `timeout` is for a whole exchange, from the connection to the last byte. One
    thread at a time may use it.
    """

    def __init__(
        self, url: str, *, timeout: float = 30.0, ca: str | PathLike[str] | None = None, insecure: bool = False
    ) -> None:
        self.scheme, self.host, self.port, self.prefix = _parts(url)
        self.timeout, self.insecure = timeout, insecure
        self.address = url.rstrip("/")
        if ca is not None and self.scheme != "https":
            raise UsageError(
                "--ca is for addresses that begin with https://.", "Correct the address, or leave out --ca."
            )
        self._context = _trust(None if ca is None else Path(ca)) if self.scheme == "https" else None
        self._connection: http.client.HTTPConnection | None = None

    @property
    def private(self) -> bool:
        """Whether nobody on the way can read along."""
        return self.scheme == "https" or is_loopback(self.host)

    def request(self, method: str, path: str, body: bytes = b"", token: str | None = None) -> Reply:
        headers = {"Content-Type": MEDIA_TYPE} if body else {}
        if token is not None:
            if not self.private and not self.insecure:
                raise UsageError(
                    f"Everybody on the way to {self.address} could read the token.",
                    "Use https:// (the server's --tls-cert), or say --insecure (in Python: insecure=True).",
                )
            headers["Authorization"] = f"Bearer {token}"
        until = time.monotonic() + self.timeout
        while True:
            fresh = self._connection is None
            try:
                return self._exchange(method, path, body, headers, until)
            except (http.client.HTTPException, OSError) as error:
                self.close()
                if fresh or isinstance(error, TimeoutError):
                    raise self._explained(error) from error
                # the server had closed what we kept: that is no failure

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(self, method: str, path: str, body: bytes, headers: dict[str, str], until: float) -> Reply:
        """One request and its reply, all of it before `until`."""
        connection = self._connection or self._connected(until)
        cast(TimedSocket, connection.sock).until = until
        # a server that refuses a long message answers before it has read it all: the answer says why
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request(method, self.prefix + path, body=body or None, headers=headers)
        content = b""
        with connection.getresponse() as answer:  # closed, so that the connection can be used again
            while piece := answer.read1(PIECE):
                content += piece
                if len(content) > LARGEST_ANSWER:
                    self.close()
                    raise TransportError(f"{self.address} sends an answer without end.", again=False)
            if answer.length:
                raise http.client.IncompleteRead(content, answer.length)
        if connection.sock is None:  # the server wants a new connection for each request
            self.close()
        return Reply(answer.status, answer.headers.get_content_type(), content)

    def _connected(self, until: float) -> http.client.HTTPConnection:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection = (
            http.client.HTTPConnection(self.host, self.port, timeout=left)
            if self._context is None
            else http.client.HTTPSConnection(self.host, self.port, timeout=left, context=self._context)
        )
        self._connection = connection  # before it connects: whatever happens then, `close` ends it
        connection.connect()
        connection.sock = TimedSocket(connection.sock)
        return connection

    def _explained(self, error: Exception) -> TransportError:
        """One sentence for what the standard library says in many ways."""
        at = self.address
        if isinstance(error, ssl.SSLCertVerificationError):
            why = (error.verify_message or "it is not trusted").rstrip(".")
            hint = "Give the certificate that signed it with --ca FILE, and the name that stands in it."
            return TransportError(f"The certificate of {at} cannot be trusted: {why}.", hint, again=False)
        if isinstance(error, ssl.SSLError):
            hint = "Does the server use TLS? Without --tls-cert its address begins with http://."
            return TransportError(f"{at} does not answer with TLS.", hint, again=False)
        if isinstance(error, TimeoutError):
            # not again: whoever gives a limit does not want to wait for it four times
            said = f"{at} did not answer within {self.timeout:g} seconds."
            return TransportError(said, "Is the server overloaded?", again=False)
        if isinstance(error, ConnectionRefusedError):
            return TransportError(f"Nobody listens at {at}.", nobody=True)
        if isinstance(error, socket.gaierror):
            return TransportError(f"There is no machine called '{self.host}'.", "Correct the address.", again=False)
        if isinstance(error, http.client.BadStatusLine | ConnectionResetError) and self.scheme == "http":
            hint = "Does the server use TLS? Then its address begins with https://."
            return TransportError(f"{at} ended the connection without an answer.", hint)
        reason = (getattr(error, "strerror", None) or str(error) or type(error).__name__).rstrip(".")
        return TransportError(f"{at} cannot be reached: {reason}.", "Is the server running?")


class LocalTransport:
    """A cloud half in this very process: the same messages, which travel nowhere."""

    address = "this process"

    def __init__(self, half: CloudHalf) -> None:
        self._half, self._name = half, artefact_id(half.artefact)

    def request(self, method: str, path: str, body: bytes = b"", token: str | None = None) -> Reply:
        if path == MANIFEST:
            about = {"artefact": self._half.artefact.digest.hex(), "serves": "cloud"}
            return Reply(200, "application/json", json.dumps(about).encode())
        message = received(body, Kind.FEATURES, self._name, self._half.manifest.feature.shape)
        logits = self._half.logits(message.values)
        return Reply(200, MEDIA_TYPE, encode(Kind.LOGITS, logits, artefact=self._name, request=message.request))

    def close(self) -> None:
        """Nothing is open."""


def _parts(url: str) -> tuple[str, str, int, str]:
    """Scheme, host, port and path of an address, or one sentence."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UsageError(f"'{url}' is no address.", "Write it as http://HOST:PORT or https://HOST:PORT.") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise UsageError(f"'{url}' is no address of a server.", "Write it as http://HOST:PORT or https://HOST:PORT.")
    return parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80), parts.path.rstrip("/")


def _trust(ca: Path | None) -> ssl.SSLContext:
    if ca is not None and not ca.is_file():
        raise UsageError(f"There is no file {ca}.", "Give --ca a file with certificates (PEM).")
    try:
        return ssl.create_default_context(cafile=None if ca is None else str(ca))
    except (ssl.SSLError, OSError):
        raise UsageError(f"{ca} holds no certificates.", "Give --ca a file with certificates (PEM).") from None
