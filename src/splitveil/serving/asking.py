"""One side of a conversation: ask, try again where that may help, and believe only what answers the question."""

from __future__ import annotations

import json
import logging
import secrets
import time
from dataclasses import dataclass
from typing import Any

from splitveil.core.errors import ServingError
from splitveil.serving.exchange import MANIFEST
from splitveil.serving.transport import Reply, Transport, TransportError
from splitveil.serving.wire import ID_BYTES, Kind, Values, WireError, decode

log = logging.getLogger("splitveil.serving")

OVERHEAD = 128  # bytes of a message beside its values, at most
START = {
    "cloud": "Start it with: splitveil cloud ARTEFACT; or correct --url.",
    "edge": "Start it with: splitveil edge ARTEFACT --serve HOST:PORT; or correct --endpoint.",
}
RETRIES, FIRST_PAUSE, LONGEST_PAUSE = 3, 0.2, 5.0  # seconds; each pause is twice the one before


@dataclass(frozen=True)
class About:
    """What a server says of itself."""

    artefact: bytes  # SHA-256
    max_message_bytes: int
    manifest: dict[str, Any]


class Caller:
    """Asks one server for the half that `serves` names, "cloud" or "edge".

    A request that got no answer is sent again as it is, byte for byte.
    """

    def __init__(self, transport: Transport, serves: str, token: str | None = None, retries: int = RETRIES) -> None:
        self._transport, self._serves, self._token, self._retries = transport, serves, token, retries
        self.address = transport.address

    def about(self) -> About:
        """What the server says of itself; it must serve the half that is asked for."""
        reply = self._request("GET", MANIFEST)
        try:
            tree = json.loads(reply.body)
            half, manifest = str(tree["serves"]), tree.get("manifest") or {}
            about = About(
                bytes.fromhex(tree["artefact"]), int(tree.get("max_message_bytes") or 1 << 20), dict(manifest)
            )
            if len(about.artefact) < ID_BYTES:
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            raise ServingError(f"{self.address} is no server of Splitveil.", "Correct the address.") from None
        if half != self._serves:
            raise ServingError(
                f"{self.address} serves the {_printable(half)[:20]} half, not the {self._serves} half.",
                "Correct the address.",
            )
        return about

    def ask(self, path: str, message: bytes, kind: Kind, artefact: bytes, request: int, count: int) -> Values:
        """The values [count, ...] that answer `message`, whose id is `request`."""
        reply = self._request("POST", path, message)
        try:
            answer = decode(reply.body)
        except WireError as error:
            raise ServingError(f"{self.address} sent no answer that can be read: {error.message}") from None
        right = (answer.kind, answer.artefact, answer.request, len(answer.values)) == (kind, artefact, request, count)
        if not right:
            raise ServingError(f"{self.address} answered another question than the one asked.")
        return answer.values

    def close(self) -> None:
        """End the connection."""
        self._transport.close()

    def _request(self, method: str, path: str, body: bytes = b"") -> Reply:
        """The reply with status 200; tries again, with growing pauses, where that may help."""
        for attempt in range(self._retries + 1):
            try:
                reply = self._transport.request(method, path, body, self._token)
                if reply.status == 200:
                    return reply
                failure = self._refused(reply)
            except TransportError as error:
                failure = error
                if error.nobody:
                    error.hint = START[self._serves]
            if not getattr(failure, "again", False) or attempt == self._retries:
                raise failure
            # up to half as long or half as long again: devices that failed together do not come back together
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt) * (0.5 + secrets.randbelow(1000) / 1000)
            log.debug("attempt %d failed (%s); again in %.2f s", attempt + 1, failure.message, pause)
            time.sleep(pause)
        raise AssertionError("the last attempt either returns or raises")

    def _refused(self, reply: Reply) -> ServingError:
        """What the server said, as an error of ours."""
        said, hint = _reason(reply)
        if reply.status == 401:
            why = "wants a token" if self._token is None else "does not accept this token"
            return ServingError(f"{self.address} {why}.", "Give the right one with --token-file or in SPLITVEIL_TOKEN.")
        if reply.status == 404:
            return ServingError(f"{self.address} is no server of Splitveil.", "Correct the address.")
        if reply.status == 503:
            return TransportError(f"{self.address} is too busy: {said or 'it has too many connections.'}", hint)
        return ServingError(f"{self.address} refused with status {reply.status}: {said or 'it gives no reason.'}", hint)


def _reason(reply: Reply) -> tuple[str, str]:
    """What is wrong and what to do, in the JSON of a refusal; empty where it says nothing."""
    try:
        tree = json.loads(reply.body[:10_000])
        return _printable(str(tree["error"])), _printable(str(tree.get("hint", "")))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "", ""


def _printable(text: str) -> str:
    """One line that a terminal survives."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text[:500]).split())
