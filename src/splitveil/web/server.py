"""`serve`: check the address, say where the page is, and answer until Ctrl-C."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import uvicorn

from splitveil.core.errors import UsageError
from splitveil.web.app import create_app
from splitveil.web.guard import LOOPBACK


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def serve(
    root: Path, *, host: str, port: int, token: str | None, browser: bool, say: Callable[[str], None] = print
) -> None:
    """Serve the app over `root`. An address that other machines can reach is refused without a token."""
    if not is_loopback(host) and not token:
        raise UsageError(
            f"{host} can be reached from other machines, so the app needs a token.",
            "Add --token SECRET, or leave out --host.",
        )
    if token is not None and len(token) < 8:
        raise UsageError("The token is too short.", "Use at least 8 characters.")
    if token is not None and not re.fullmatch(r"[A-Za-z0-9._~-]+", token):  # it travels in an address and in a cookie
        raise UsageError(
            "The token has characters that addresses cannot carry.", "Use letters, digits and . _ ~ - only."
        )
    # with a token the name does not matter: a rebound page does not have the cookie
    hosts = None if token else LOOPBACK | {host.strip("[]")}
    app = create_app(root, token=token, hosts=hosts)
    listener = _listen(host, port)
    port = listener.getsockname()[1]
    shown = "localhost" if host in {"0.0.0.0", "::"} else f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}/" + (f"?token={quote(token)}" if token else "")
    say(f"The runs in {root} are at {address} (Ctrl-C ends the app)")
    if browser:
        threading.Timer(0.8, webbrowser.open, [address]).start()
    config = uvicorn.Config(app, log_level="warning", server_header=False, ws="none", timeout_graceful_shutdown=2)
    try:
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        listener.close()
        services = getattr(app.state, "services", None)
        for job in services.jobs.running() if services is not None else []:
            say(f"still training: {job.name} (process {job.process.pid})")


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
        listener.listen()  # from here on a visitor waits rather than being refused
    except (OSError, UnicodeError) as error:  # the latter where a name cannot be one of a machine
        listener.close()
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        if not isinstance(error, OSError) or isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise UsageError(
                f"This machine has no address '{host}': {reason}.",
                "Leave out --host, or use 0.0.0.0 for every address of this machine.",
            ) from None
        raise UsageError(f"The app cannot listen on {host}:{port}: {reason}.", "Choose another --port.") from None
    listener.set_inheritable(False)  # runs that are started from the page must not hold the address
    return listener
