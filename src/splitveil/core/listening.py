"""Addresses that a server of ours listens on: who can reach them, and a socket that is bound to one."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket

from splitveil.core.errors import UsageError

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
SHORTEST_TOKEN = 8


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_token(token: str) -> None:
    """Refuse a token that is easily guessed, or that a header, an address or a cookie cannot carry."""
    if len(token) < SHORTEST_TOKEN:
        raise UsageError("The token is too short.", f"Use at least {SHORTEST_TOKEN} characters.")
    if not re.fullmatch(r"[A-Za-z0-9._~-]+", token):
        raise UsageError(
            "The token has characters that addresses cannot carry.", "Use letters, digits and . _ ~ - only."
        )


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens already, so that a visitor waits rather than being refused; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
        listener.listen()
    except (OSError, UnicodeError) as error:  # the latter where a name cannot be one of a machine
        listener.close()
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        if not isinstance(error, OSError) or isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise UsageError(
                f"This machine has no address '{host}': {reason}.",
                "Leave out --host, or use 0.0.0.0 for every address of this machine.",
            ) from None
        raise UsageError(f"The app cannot listen on {host}:{port}: {reason}.", "Choose another --port.") from None
    listener.set_inheritable(False)  # processes that the server starts must not hold the address
    return listener


def shown_host(host: str) -> str:
    """A host as it stands in an address that people open."""
    return "localhost" if host in {"0.0.0.0", "::"} else f"[{host}]" if ":" in host and host[0] != "[" else host
