"""The device: its half of the network runs here, and only what the defences let through is sent.

It needs numpy and onnxruntime; neither torch nor any training code.
"""

from __future__ import annotations

import json
import logging
import math
import secrets
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splitveil.core.errors import ServingError, UsageError
from splitveil.serving.artefact import Artefact
from splitveil.serving.exchange import INFER, MANIFEST, OtherArtefactError, artefact_id, received
from splitveil.serving.halves import EdgeHalf
from splitveil.serving.random_inputs import Source
from splitveil.serving.repeats import RepeatGuard
from splitveil.serving.transport import HttpTransport, Reply, Transport, TransportError
from splitveil.serving.wire import MEDIA_TYPE, TYPES, Kind, WireError, decode, encode

log = logging.getLogger("splitveil.serving")

PER_MESSAGE = 64  # pictures in one message
OVERHEAD = 128  # bytes of a message beside its values, at most
RETRIES, FIRST_PAUSE, LONGEST_PAUSE = 3, 0.2, 5.0  # seconds; each pause is twice the one before
MANY = 16  # transmissions of one picture that are worth a warning: audits average about as many


@dataclass(frozen=True, eq=False)
class Answer:
    """What the network says about pictures, and what that cost."""

    labels: NDArray[np.int64]  # [B]
    probabilities: NDArray[np.float64]  # [B, C]
    bytes_sent: int  # of messages, without what HTTP adds
    messages: int
    seconds: float


class EdgeClient:
    """Classifies pictures: the edge half here, the cloud half behind `server` (an address, or a transport).

    Nothing is sent before the server has shown that it holds the same artefact. A message that got no answer is sent
    again as it is, byte for byte: new noise for the same picture would be something to average. `bits` rounds what is
    sent, after the noise. `guard` counts repeated pictures.

    Example: ``EdgeClient(read("artefact"), "http://127.0.0.1:8750").classify(pictures).labels``
    """

    def __init__(
        self,
        artefact: Artefact,
        server: str | Transport,
        *,
        token: str | None = None,
        bits: int = 32,
        source: Source | None = None,
        guard: RepeatGuard | None = None,
        retries: int = RETRIES,
        threads: int = 1,
    ) -> None:
        if bits not in TYPES:
            raise UsageError(f"What is sent cannot have {bits} bits for each value.", "Use 32, 16 or 8.")
        self.artefact, self.manifest = artefact, artefact.manifest
        self._half = EdgeHalf(artefact, threads=threads)
        self._transport: Transport = HttpTransport(server) if isinstance(server, str) else server
        self._token, self._bits, self._source, self._retries = token, bits, source, retries
        self.guard = guard or RepeatGuard()
        self._name = artefact_id(artefact)
        self._per_message: int | None = None  # known once the server is

    def check(self) -> None:
        """Make sure that the server can be reached, takes the token, and holds the same artefact."""
        reply = self._request("GET", MANIFEST)
        try:
            about = json.loads(reply.body)
            name, serves, limit = about["artefact"], about["serves"], int(about.get("max_message_bytes", 1 << 30))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ServingError(f"{self._transport.address} is no server of Splitveil.", "Correct --url.") from None
        if serves != "cloud":
            raise ServingError(f"{self._transport.address} serves the {str(serves)[:20]} half.", "Correct --url.")
        if name != self.artefact.digest.hex():
            raise OtherArtefactError(
                f"The server holds the artefact {str(name)[:10]}, this device {self.artefact.digest.hex()[:10]}.",
                "Give both the same artefact; nothing was sent.",
            )
        one = math.prod(self.manifest.feature.shape) * self._bits // 8
        self._per_message = min(PER_MESSAGE, max(1, (limit - OVERHEAD) // one))

    def classify(self, pictures: NDArray[Any]) -> Answer:
        """Labels and probabilities for pictures [B, ch, h, w], float32 in [0, 1]."""
        began = time.monotonic()
        pictures = self._half.checked(pictures)
        if self._per_message is None:
            self.check()
        assert self._per_message is not None  # `check` has set it
        if self.manifest.random:  # without noise the same picture gives the same message: nothing to average
            counts = self.guard.admit(pictures)
            if MANY in counts:
                log.warning(
                    "A picture was sent %d times: whoever averages what was sent has %.2g times the noise.",
                    MANY,
                    1 / math.sqrt(MANY),
                )
        logits, sizes = [], []
        for start in range(0, len(pictures), self._per_message):
            features = self._half.features(pictures[start : start + self._per_message], self._source)
            request = secrets.randbits(64)
            message = encode(Kind.FEATURES, features, artefact=self._name, request=request, bits=self._bits)
            logits.append(self._ask(message, request, len(features)))
            sizes.append(len(message))
        shape = (0, self.manifest.num_classes)
        values = np.concatenate(logits) if logits else np.zeros(shape, np.float32)
        return Answer(
            values.argmax(1).astype(np.int64), softmax(values), sum(sizes), len(sizes), time.monotonic() - began
        )

    def close(self) -> None:
        """End the connection."""
        self._transport.close()

    def __enter__(self) -> EdgeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, message: bytes, request: int, count: int) -> NDArray[np.float32]:
        reply = self._request("POST", INFER, message)
        try:
            answer = received(reply.body, Kind.LOGITS, self._name, (self.manifest.num_classes,))
        except WireError as error:
            raise ServingError(f"{self._transport.address} sent no answer that can be read: {error.message}") from None
        if answer.request != request or len(answer.values) != count:
            raise ServingError(f"{self._transport.address} answered another question than the one asked.")
        return answer.values

    def _request(self, method: str, path: str, body: bytes = b"") -> Reply:
        """The reply with status 200; tries again, with growing pauses, where that may help."""
        for attempt in range(self._retries + 1):
            try:
                reply = self._transport.request(method, path, body, self._token)
                if reply.status == 200:
                    return reply
                failure = _refused(reply, self._transport.address, self._token is not None)
            except TransportError as error:
                failure = error
            if not getattr(failure, "again", False) or attempt == self._retries:
                raise failure
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt) * (0.5 + secrets.randbelow(1000) / 1000)
            log.debug("attempt %d failed (%s); again in %.2f s", attempt + 1, failure.message, pause)
            time.sleep(pause)
        raise AssertionError("the last attempt either returns or raises")


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Probabilities [B, C]; the largest logit is subtracted first, so that no exponential overflows."""
    powers = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def _refused(reply: Reply, address: str, with_token: bool) -> ServingError:
    """What the server said, as an error of ours."""
    said = _sentence(reply)
    if reply.status == 401:
        hint = "Give the right one with --token-file or in SPLITVEIL_TOKEN."
        return ServingError(f"{address} {'does not accept this token' if with_token else 'wants a token'}.", hint)
    if reply.status == 404:
        return ServingError(f"{address} is no cloud server of Splitveil.", "Correct --url.")
    if reply.status == 503:
        return TransportError(f"{address} is too busy: {said}")
    return ServingError(f"{address} refused with status {reply.status}: {said or 'it gives no reason.'}")


def _sentence(reply: Reply) -> str:
    """The reason in a refusal: of a message, of our JSON, or none."""
    try:
        if reply.media_type == MEDIA_TYPE:
            return decode(reply.body).text
        found = json.loads(reply.body[:10_000])["error"]
        return " ".join("".join(c if c.isprintable() else " " for c in str(found)[:500]).split())
    except (WireError, ValueError, KeyError, TypeError, RecursionError):
        return ""
