"""The device: its half of the network runs here, and only what the defences let through is sent.

It needs numpy and onnxruntime; neither torch nor any training code.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splitveil.core.errors import ServingError, UsageError
from splitveil.serving.artefact import Artefact, opened
from splitveil.serving.asking import OVERHEAD, RETRIES, Caller
from splitveil.serving.exchange import INFER, OtherArtefactError, artefact_id
from splitveil.serving.halves import EdgeHalf
from splitveil.serving.manifest import EDGE
from splitveil.serving.random_inputs import Source
from splitveil.serving.repeats import RepeatGuard, RepeatLimitError
from splitveil.serving.transport import HttpTransport, LocalTransport, Transport
from splitveil.serving.wire import TYPES, Kind, encode

log = logging.getLogger("splitveil.serving")

PER_MESSAGE = 64  # pictures in one message
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

    `artefact` is what `read` gives, or its folder.

    Nothing is sent before the server has shown that it holds the same artefact. A message that got no answer is sent
    again as it is, byte for byte: new noise for the same picture would be something to average. `bits` rounds what is
    sent, after the noise. `guard` counts repeated pictures that leave this process. A token is not sent in clear to the
    address of another machine unless `insecure` is true; a transport has a setting of its own.

    Example: ``EdgeClient("artefact", "http://127.0.0.1:8750").classify(pictures).labels``
    """

    def __init__(
        self,
        artefact: Artefact | str | PathLike[str],
        server: str | Transport,
        *,
        token: str | None = None,
        bits: int = 32,
        source: Source | None = None,
        guard: RepeatGuard | None = None,
        retries: int = RETRIES,
        threads: int = 1,
        insecure: bool = False,
    ) -> None:
        if bits not in TYPES:
            raise UsageError(f"What is sent cannot have {bits} bits for each value.", "Use 32, 16 or 8.")
        artefact = opened(artefact, need=[EDGE])
        self.artefact, self.manifest = artefact, artefact.manifest
        self._half = EdgeHalf(artefact, threads=threads)
        transport: Transport = HttpTransport(server, insecure=insecure) if isinstance(server, str) else server
        self._sends = not isinstance(transport, LocalTransport)
        self._server = Caller(transport, "cloud", token, retries)
        self._bits, self._source = bits, source
        self.guard = guard or RepeatGuard()
        self._name = artefact_id(artefact)
        self._per_message: int | None = None  # known once the server is
        self.unanswered = 0  # pictures of the message that left last and has no answer (yet): the server may have them

    def check(self) -> None:
        """Make sure that the server can be reached, takes the token, and holds the same artefact."""
        about = self._server.about()
        name = about.artefact
        if name != self.artefact.digest:
            raise OtherArtefactError(
                f"The server holds the artefact {name.hex()[:10]}, this device {self.artefact.digest.hex()[:10]}.",
                "Give both the same artefact; nothing was sent.",
            )
        one = math.prod(self.manifest.feature.shape) * self._bits // 8
        self._per_message = min(PER_MESSAGE, max(1, (about.max_message_bytes - OVERHEAD) // one))

    @property
    def per_message(self) -> int:
        """How many pictures travel in one message at most; the server is asked first where it was not yet."""
        if self._per_message is None:
            self.check()
        assert self._per_message is not None  # `check` has set it
        return self._per_message

    def classify(self, pictures: NDArray[Any]) -> Answer:
        """Labels and probabilities for pictures [B, ch, h, w], float32 in [0, 1].

        An error drops the answers that came before it: `answers` hands them over as they come.
        """
        parts = list(self.answers(pictures))
        none = np.zeros((0, self.manifest.num_classes))
        return Answer(
            np.concatenate([np.zeros(0, np.int64), *(part.labels for part in parts)]),
            np.concatenate([none, *(part.probabilities for part in parts)]),
            sum(part.bytes_sent for part in parts),
            len(parts),
            sum(part.seconds for part in parts),
        )

    def answers(self, pictures: NDArray[Any]) -> Iterator[Answer]:
        """What `classify` says, one message after the other, in the order of the pictures.

        A message is counted as sent just before it leaves, and stays counted where no answer comes: the server may have
        it. Pictures of later messages, which never left, are not counted. Pictures over the limit are an error before
        the first message.
        """
        pictures = self._half.checked(pictures)
        at_once = self.per_message
        if self._counted and len(pictures) > at_once:
            self.guard.check(pictures)
        for start in range(0, len(pictures), at_once):
            began = time.monotonic()
            some = pictures[start : start + at_once]
            features, request = self._half.features(some, self._source), secrets.randbits(64)
            message = encode(Kind.FEATURES, features, artefact=self._name, request=request, bits=self._bits)
            if self._counted:
                self._count(some, start)
            self.unanswered = len(some) if self._sends else 0
            values = self._ask(message, request, len(features))
            self.unanswered = 0
            labels = values.argmax(1).astype(np.int64)
            yield Answer(labels, softmax(values), len(message), 1, time.monotonic() - began)

    def close(self) -> None:
        """End the connection."""
        self._server.close()

    def __enter__(self) -> EdgeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _counted(self) -> bool:
        """Without noise one picture gives one message, and in this process nobody listens: nothing to average."""
        return bool(self.manifest.random) and self._sends

    def _count(self, some: NDArray[Any], start: int) -> None:
        """Count the pictures of a message, which begins at the place `start` of a call."""
        try:
            counts = self.guard.admit(some)
        except RepeatLimitError as error:  # another process sent some since the call began, where it has more messages
            error.places = [start + place for place in error.places]
            raise
        if MANY in counts:
            log.warning(
                "A picture was sent %d times (nearly equal ones count): whoever averages what was sent has %.2g "
                "times the noise.",
                MANY,
                1 / math.sqrt(MANY),
            )

    def _ask(self, message: bytes, request: int, count: int) -> NDArray[np.float32]:
        values = self._server.ask(INFER, message, Kind.LOGITS, self._name, request, count)
        if values.shape[1:] != (self.manifest.num_classes,):
            raise ServingError(f"{self._server.address} answers with {list(values.shape[1:])} values for a picture.")
        return values


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Probabilities [B, C]; the largest logit is subtracted first, so that no exponential overflows."""
    powers = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)
