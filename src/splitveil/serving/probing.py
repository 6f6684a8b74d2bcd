"""The auditor's side of `/v1/features`: pictures in, what a device would send out. Every call is a new transmission."""

from __future__ import annotations

import math
import secrets
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splitveil.core.errors import InputError, ServingError
from splitveil.serving.asking import OVERHEAD, RETRIES, Caller
from splitveil.serving.exchange import FEATURES
from splitveil.serving.transport import HttpTransport, Transport
from splitveil.serving.wire import ID_BYTES, PIXELS, Kind, Values, encode

PER_MESSAGE = 256  # pictures in one message


class FeatureClient:
    """Asks an edge half behind an address, or a transport. It need not be one of ours: docs/serving.md says what it
    must answer. A token is not sent in clear to the address of another machine unless `insecure` is true.
    """

    def __init__(
        self, server: str | Transport, *, token: str | None = None, retries: int = RETRIES, insecure: bool = False
    ) -> None:
        transport: Transport = HttpTransport(server, insecure=insecure) if isinstance(server, str) else server
        self._server = Caller(transport, "edge", token, retries)
        self.about = self._server.about()
        self.pictures = 0  # how many were asked for

    @property
    def address(self) -> str:
        return self._server.address

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """What the endpoint says that it takes; None where it does not say."""
        said = self.about.manifest.get("input")
        shape = said.get("shape") if isinstance(said, dict) else None
        good = isinstance(shape, list) and all(isinstance(side, int) for side in shape)
        return tuple(shape) if good and shape is not None else None

    def features(self, pictures: NDArray[Any]) -> Values:
        """What the device sends for pictures [B, ch, h, w], float32 in [0, 1]; B is at least 1."""
        if len(pictures) == 0:
            raise InputError("There is no picture to send.")
        one = math.prod(pictures.shape[1:]) * 4
        at_once = min(PER_MESSAGE, max(1, (self.about.max_message_bytes - OVERHEAD) // one))
        parts = [self._some(pictures[start : start + at_once]) for start in range(0, len(pictures), at_once)]
        if len({part.shape[1:] for part in parts}) > 1:
            raise ServingError(f"{self.address} gives features of different shapes.")
        return np.concatenate(parts)

    def close(self) -> None:
        """End the connection."""
        self._server.close()

    def _some(self, pictures: Values) -> Values:
        request, name = secrets.randbits(64), self.about.artefact[:ID_BYTES]
        # 8-bit pictures travel as such, a quarter of the bytes
        pixels = np.rint(pictures * np.float32(255)) / np.float32(255)
        bits, affine = (8, PIXELS) if np.array_equal(pixels, pictures) else (32, None)
        message = encode(Kind.PICTURES, pictures, artefact=name, request=request, bits=bits, affine=affine)
        self.pictures += len(pictures)
        return self._server.ask(FEATURES, message, Kind.FEATURES, name, request, len(pictures))
