"""The message between the halves: a header, the values, a checksum. Numbers only; nothing in it is ever executed.

Little-endian, without padding:

    4 s   magic "SVZ1"
    B     version, 1
    B     kind: 1 features, 2 pictures, 3 logits
    B     type: 1 float32, 2 float16, 3 uint8 with a scale and an offset
    B     ndim, 1 to 8
    16 s  the first 16 bytes of the artefact's sha256
    Q     request id: an answer repeats that of its question
    ndim x I    shape, every side at least 1
    2 x d       scale and offset, for uint8 alone: value = offset + scale * byte
    I     length of the payload in bytes
    ...   payload, C order
    I     crc32 of all before it

`encode` and `decode` are pure functions; whatever is not such a message raises `WireError` with one sentence. Values
are finite: NaN and infinity are refused on both sides, because one of them can spoil the answers of a whole batch.
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from splitveil.core.errors import InputError

MAGIC, VERSION = b"SVZ1", 1
MEDIA_TYPE = "application/x-splitveil"
ID_BYTES = 16
MOST_SIDES = 8
HEAD, SIDE, AFFINE, LENGTH, CHECK = (struct.Struct(f"<{form}") for form in ("4sBBBB16sQ", "I", "dd", "I", "I"))

Values = NDArray[np.float32]
PIXELS = (1 / 255, 0.0)  # the scale and offset of 8-bit pictures in [0, 1], which lose nothing


class WireError(InputError):
    """What came is no message, or not the one that was expected; or values that no message can carry."""


class Kind(IntEnum):
    """What a message carries."""

    FEATURES = 1
    PICTURES = 2
    LOGITS = 3


class Type(IntEnum):
    """How a value is written."""

    FLOAT32 = 1
    FLOAT16 = 2
    UINT8 = 3


DTYPES: dict[Type, np.dtype[Any]] = {
    Type.FLOAT32: np.dtype("<f4"),
    Type.FLOAT16: np.dtype("<f2"),
    Type.UINT8: np.dtype("u1"),
}
TYPES: dict[int, Type] = {32: Type.FLOAT32, 16: Type.FLOAT16, 8: Type.UINT8}


@dataclass(frozen=True, eq=False)
class Message:
    """One message: float32 `values`, one row for each picture."""

    kind: Kind
    artefact: bytes
    request: int
    values: Values
    bits: int = 32


def encode(
    kind: Kind,
    values: Values,
    *,
    artefact: bytes,
    request: int,
    bits: int = 32,
    affine: tuple[float, float] | None = None,
) -> bytes:
    """A message with `values` [B, ...] of 32, 16 or 8 bits.

    With 8 bits the values of the message share a scale and an offset, those of their own range unless `affine` gives
    them; the error is then at most half a scale. Raises `WireError` where values are not finite or out of range.

    >>> features = np.ones((1, 2), np.float32)
    >>> decode(encode(Kind.FEATURES, features, artefact=bytes(16), request=7, bits=8)).values
    array([[1., 1.]], dtype=float32)
    """
    if bits not in TYPES:
        raise WireError(f"A message cannot have {bits} bits for each value.", "Use 32, 16 or 8.")
    if not 1 <= values.ndim <= MOST_SIDES or values.size == 0:
        raise WireError(f"A message cannot carry values of shape {list(values.shape)}.")
    if not np.isfinite(values).all():
        raise WireError("The values to send are not all finite.")
    scaling = b""
    if bits == 8:
        scale, offset = affine or _range(values)
        steps = (values.astype(np.float64) - offset) / (scale or 1.0)  # a scale of 0: all values equal the offset
        packed = steps.round().clip(0, 255)
        if np.abs(packed - steps).max() > 0.5 + 1e-6:  # only where `affine` was given: the own range always fits
            raise WireError("The values to send are out of the range of the given scale and offset.")
        scaling = AFFINE.pack(scale, offset)
    else:
        with np.errstate(over="ignore"):  # looked at below
            packed = values.astype(DTYPES[TYPES[bits]])
        if not np.isfinite(packed).all():
            raise WireError("The values to send are too large for 16 bits.", "Use 32 bits.")
    payload = packed.astype(DTYPES[TYPES[bits]]).tobytes()
    shape = b"".join(SIDE.pack(side) for side in values.shape)
    head = HEAD.pack(MAGIC, VERSION, kind, TYPES[bits], values.ndim, _named(artefact), request)
    return _sealed(head + shape + scaling, payload)


def decode(data: bytes) -> Message:
    """The message in `data`; anything else, or anything more, raises `WireError`."""
    if len(data) < HEAD.size + LENGTH.size + CHECK.size:
        raise WireError(f"The message is cut off: it has {len(data)} bytes, fewer than any message.")
    magic, version, kind_code, type_code, ndim, artefact, request = HEAD.unpack_from(data)
    if magic != MAGIC:
        raise WireError("This is no message of Splitveil: it begins otherwise.")
    if version != VERSION:
        raise WireError(f"The message has version {version}, and only {VERSION} is known.")
    if CHECK.unpack(data[-CHECK.size :])[0] != zlib.crc32(data[: -CHECK.size]):
        raise WireError("The message is damaged or cut off: its checksum is wrong.")
    try:
        kind, type_ = Kind(kind_code), Type(type_code)
    except ValueError:
        raise WireError(f"The message is of an unknown kind ({kind_code}) or type ({type_code}).") from None
    if not 1 <= ndim <= MOST_SIDES:
        raise WireError(f"The message says that its values have {ndim} sides; 1 to {MOST_SIDES} are possible.")
    reader = _Reader(data, HEAD.size)
    shape = tuple(int(reader.take(SIDE)[0]) for _ in range(ndim))
    scale, offset = reader.take(AFFINE) if type_ is Type.UINT8 else (1.0, 0.0)
    payload = reader.rest(int(reader.take(LENGTH)[0]))
    return Message(
        kind, artefact, request, _values(payload, type_, shape, scale, offset), bits=8 * DTYPES[type_].itemsize
    )


class _Reader:
    """Takes one field after the other; the checksum's bytes are no field."""

    def __init__(self, data: bytes, place: int) -> None:
        self.data, self.place, self.end = data, place, len(data) - CHECK.size

    def take(self, field: struct.Struct) -> tuple[float, ...]:
        if self.place + field.size > self.end:
            raise WireError("The message is too short for the header that it has.")
        found = field.unpack_from(self.data, self.place)
        self.place += field.size
        return found

    def rest(self, length: int) -> bytes:
        if self.end - self.place != length:
            raise WireError(f"The message says {length} bytes of payload but has {self.end - self.place}.")
        return self.data[self.place : self.end]


def _values(payload: bytes, type_: Type, shape: tuple[int, ...], scale: float, offset: float) -> Values:
    dtype = DTYPES[type_]
    if 0 in shape or math.prod(shape) * dtype.itemsize != len(payload):
        raise WireError(f"The message says the shape {list(shape)}, which {len(payload)} bytes do not fill.")
    if not (math.isfinite(scale) and math.isfinite(offset) and scale >= 0):
        raise WireError(f"The message has a scale of {scale} and an offset of {offset}.")
    stored = np.frombuffer(payload, dtype).reshape(shape)
    with np.errstate(over="ignore"):  # looked at below
        # value = offset + scale·byte, in float64: then only the last step rounds
        values = (offset + scale * stored.astype(np.float64) if type_ is Type.UINT8 else stored).astype(np.float32)
    if not np.isfinite(values).all():
        raise WireError("The message has values that are not finite.")
    return values


def _range(values: Values) -> tuple[float, float]:
    """The scale and offset with which 0 is the smallest value and 255 the largest."""
    lowest, highest = float(values.min()), float(values.max())
    return (highest - lowest) / 255, lowest


def _named(artefact: bytes) -> bytes:
    if len(artefact) != ID_BYTES:
        raise WireError(f"An artefact is named by {ID_BYTES} bytes, not {len(artefact)}.")
    return artefact


def _sealed(head: bytes, payload: bytes) -> bytes:
    if len(payload) >= 2**32:
        raise WireError("The values to send take more than 4 GiB.", "Send fewer pictures at once.")
    message = head + LENGTH.pack(len(payload)) + payload
    return message + CHECK.pack(zlib.crc32(message))
