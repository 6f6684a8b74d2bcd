"""Run an app until Ctrl-C or SIGTERM: check address, token and certificate first, and end without losing answers."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from splitveil.core.errors import UsageError
from splitveil.core.listening import LOOPBACK, is_loopback, listen, shown_host
from splitveil.core.stopping import stopped_in_order
from splitveil.serving.metrics import Metrics

log = logging.getLogger("splitveil.serving")

MOST_CONNECTIONS = 256  # each may hold a whole message in memory
HEAD_SECONDS = 30.0  # for the head of a request to arrive
GRACE_SECONDS = 5  # for answers that are under way when the server is stopped


@dataclass(frozen=True)
class Place:
    """Where to listen, and how."""

    host: str = "127.0.0.1"
    port: int = 8750
    certificate: Path | None = None
    key: Path | None = None
    insecure: bool = False  # the user knows that others can reach it and that it has no token
    option: str | None = None  # that gave host and port; None: --host and --port

    def check(self, token: str | None) -> None:
        """Refuse what others could reach without a token, and certificates that cannot be used."""
        if not is_loopback(self.host) and token is None and not self.insecure:
            raise UsageError(
                f"{self.host} can be reached from other machines, so the server needs a token.",
                "Give one with --token-file or in SPLITVEIL_TOKEN, or say --insecure.",
            )
        if (self.certificate is None) != (self.key is None):
            raise UsageError("TLS needs a certificate and its key.", "Give both --tls-cert and --tls-key.")
        if self.certificate is not None and self.key is not None:
            _check_certificate(self.certificate, self.key)

    @property
    def hosts(self) -> frozenset[str] | None:
        """The names to answer to without a token; None, any, where others are let in on purpose."""
        return LOOPBACK | {self.host.strip("[]")} if is_loopback(self.host) else None


class Connection(H11Protocol):
    """One that brings no request is ended; uvicorn would wait for ever, and `MOST_CONNECTIONS` would soon be idle ones.

    It is also the parser whose heads have a limit of length.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(HEAD_SECONDS, self._look, None)

    def _look(self, before: object) -> None:
        """Close where no request is under way and none began since the last look, when `before` was the newest."""
        if self.transport.is_closing():
            return
        if self.cycle is before and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()
        else:
            self.loop.call_later(HEAD_SECONDS, self._look, self.cycle)


def serve(app: FastAPI, place: Place, describe: Callable[[str], str], say: Callable[[str], None] = print) -> None:
    """Serve `app` at `place`, which was checked. `describe(URL)` is the line that says so."""
    listener = listen(place.host, place.port, place.option)
    scheme = "http" if place.certificate is None else "https"
    say(describe(f"{scheme}://{shown_host(place.host)}:{listener.getsockname()[1]}"))
    for warning in exposed(place, with_token=app.state.settings.token is not None):
        log.warning("%s", warning)
    config = uvicorn.Config(
        app,
        http=Connection,
        log_level="error",
        server_header=False,
        ws="none",
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ssl_certfile=place.certificate,
        ssl_keyfile=place.key,
    )
    _run(uvicorn.Server(config), listener)
    metrics: Metrics = app.state.metrics
    say(f"stopped (pictures: {metrics.pictures}, requests: {sum(metrics.requests.values())})")


def exposed(place: Place, *, with_token: bool) -> list[str]:
    """What the owner of a server should know that other machines can reach."""
    if is_loopback(place.host):
        return []
    every = ", every address of this machine" if place.host in {"0.0.0.0", "::"} else ""
    warnings = [f"it is open to other machines: it listens on {place.host}{every}"]
    if place.certificate is None:
        token = ", and their token" if with_token else ""
        warnings.append(f"without --tls-cert everybody on the way can read what devices send{token}")
    if not with_token:
        warnings.append("without a token whoever reaches it may ask")
    return warnings


def _run(server: uvicorn.Server, listener: socket.socket) -> None:
    try:
        with stopped_in_order():
            server.run(sockets=[listener])
    except KeyboardInterrupt:
        pass  # uvicorn has ended in good order and hands Ctrl-C, or SIGTERM, on
    finally:
        listener.close()


def _check_certificate(certificate: Path, key: Path) -> None:
    for option, path in (("--tls-cert", certificate), ("--tls-key", key)):
        if not path.is_file():
            raise UsageError(f"There is no file {path}.", f"Correct {option}.")

    def no_password() -> str:
        raise UsageError(f"The key {key} is locked with a password.", "Give a key without one.")

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=no_password)
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or (None if isinstance(error, ssl.SSLError) else error.strerror)
        said = reason.lower().replace("_", " ") if reason else "not PEM"  # for which OpenSSL has no words
        raise UsageError(
            f"{certificate} and {key} cannot be used for TLS: {said}.",
            "Give a certificate and its own key, both PEM.",
        ) from None
