"""Addresses that a server of ours listens on, who can reach them, and the token that visitors must know."""

from __future__ import annotations

import errno
import hmac
import ipaddress
import os
import re
import socket
from pathlib import Path
from urllib.parse import urlsplit

from splitveil.core.errors import UsageError

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
SHORTEST_TOKEN = 8
TOKEN_VARIABLE = "SPLITVEIL_TOKEN"


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


def read_token(file: Path | None) -> str | None:
    """The token in `file`, or in the environment; None where neither is given. Never from the command line: other
    users of a machine can read that.
    """
    if file is None:
        token = os.environ.get(TOKEN_VARIABLE)
        source = f"The variable {TOKEN_VARIABLE}"
    else:
        try:
            token = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise UsageError(f"The token cannot be read from {file}: {reason}.", "Correct --token-file.") from None
        source = f"The file {file}"
    if token is not None:
        if not token:
            raise UsageError(f"{source} holds no token.", f"Write at least {SHORTEST_TOKEN} characters into it.")
        check_token(token)
    return token


def is_token(given: str, token: str) -> bool:
    """Whether a visitor knows the token; how long the answer takes does not tell how much of it is right."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def bears_token(authorization: str, token: str) -> bool:
    """Whether an Authorization header is `Bearer` and the token."""
    scheme, _, given = authorization.partition(" ")
    return scheme.lower() == "bearer" and is_token(given, token)


def host_name(header: str) -> str:
    """The name in a Host header, without port and brackets; empty where it holds none.

    >>> host_name("Localhost:8750"), host_name("[::1]:8750"), host_name("[")
    ('localhost', '::1', '')
    """
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


def listen(host: str, port: int, option: str | None = None) -> socket.socket:
    """A socket that listens already, so that a visitor waits rather than being refused; port 0 takes a free one.

    `option` names both on the command line; unless given, they are --host and --port.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # the protocol by name: only then asyncio sends small answers at once, instead of 40 ms later
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
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
                f"{'Leave out --host' if option is None else f'Correct {option}'}, or use 0.0.0.0 for every address of "
                "this machine.",
            ) from None
        hint = f"Choose another {'--port' if option is None else f'port in {option}'}."
        raise UsageError(f"The server cannot listen on {host}:{port}: {reason}.", hint) from None
    listener.set_inheritable(False)  # processes that the server starts must not hold the address
    return listener


def shown_host(host: str) -> str:
    """A host as it stands in an address that people open."""
    return "localhost" if host in {"0.0.0.0", "::"} else f"[{host}]" if ":" in host and host[0] != "[" else host
