"""Random inputs of the edge graph, drawn on the device. No torch.

A defence that adds noise is worth what its generator is worth: who can predict the noise subtracts it. numpy's and
torch's generators are made for simulation, and their state can be recovered from what they gave out; so every draw
comes from the operating system (os.urandom), which an observer of any number of transmissions cannot predict.

The laws are computed here, from bytes, the same way for both sources: what tests find out about `SeededSource` holds
for `SecureSource`.

    uniform    24 random bits / 2^24: on [0, 1), and every value is a float32, as torch draws it
    normal     Box-Muller in float64 from 53 random bits each, r = √(-2·ln(1 - u)), r·cos(2πv) and r·sin(2πv);
               reaches 8.5 standard deviations; rounded to float32 at the end, as everything that is sent is
    integers   64 random bits modulo `high`, drawn again where the last, incomplete round was hit: no value is favoured
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from splitveil.core.errors import InputError
from splitveil.serving.manifest import RandomInput

Draws = dict[str, NDArray[np.float32] | NDArray[np.int64]]
WORDS = 1 << 64


class Source(Protocol):
    """Where random bytes come from."""

    def take(self, count: int) -> bytes:
        """`count` bytes that nobody has seen."""
        ...


class SecureSource:
    """Bytes of the operating system's secure generator; safe to share between threads."""

    def take(self, count: int) -> bytes:
        return os.urandom(count)


class SeededSource:
    """The same bytes for the same seed, on every machine (SHAKE-256 of seed and call): for tests and audits only.

    Whoever knows the seed knows the noise: never send what was drawn from this.
    """

    def __init__(self, seed: int) -> None:
        self.seed, self.calls = seed, 0

    def take(self, count: int) -> bytes:
        self.calls += 1
        return hashlib.shake_256(f"splitveil {self.seed} {self.calls}".encode()).digest(count)


def draw(inputs: Iterable[RandomInput], batch: int, source: Source | None = None) -> Draws:
    """Fresh random inputs for `batch` pictures, by name, each [batch, *shape]; from `SecureSource` unless told.

    >>> one = RandomInput(name="noise", law="normal", shape=(2, 3))
    >>> draw([one], batch=4)["noise"].shape
    (4, 2, 3)
    """
    if batch < 0:
        raise InputError(f"There cannot be {batch} pictures.")
    source = SecureSource() if source is None else source
    drawn: Draws = {}
    for one in inputs:
        shape = (batch, *one.shape)
        count = math.prod(shape)
        if one.law == "normal":
            drawn[one.name] = normal(count, source).reshape(shape)
        elif one.law == "uniform":
            drawn[one.name] = uniform(count, source).reshape(shape)
        else:
            assert one.high is not None  # the manifest has checked it
            drawn[one.name] = integers(count, one.high, source).reshape(shape)
    return drawn


def uniform(count: int, source: Source) -> NDArray[np.float32]:
    """On [0, 1), float32."""
    bits = np.frombuffer(source.take(4 * count), dtype="<u4") >> 8
    return bits.astype(np.float32) * np.float32(2.0**-24)  # exact: 24 bits are the digits of a float32


def normal(count: int, source: Source) -> NDArray[np.float32]:
    """N(0, 1), float32."""
    pairs = (count + 1) // 2
    bits = np.frombuffer(source.take(16 * pairs), dtype="<u8") >> np.uint64(11)
    u, v = (bits * 2.0**-53).reshape(2, pairs)  # on [0, 1)
    radius = np.sqrt(-2.0 * np.log1p(-u))  # 1 - u > 0: the logarithm is finite
    values = np.concatenate([radius * np.cos(2 * np.pi * v), radius * np.sin(2 * np.pi * v)])
    return values[:count].astype(np.float32)


def integers(count: int, high: int, source: Source) -> NDArray[np.int64]:
    """Each of 0 ... high - 1 with the same probability, int64."""
    limit = WORDS - WORDS % high  # a multiple of `high`: below it all remainders are equally frequent
    words = np.frombuffer(source.take(8 * count), dtype="<u8").copy()
    while len(again := np.flatnonzero(words > np.uint64(limit - 1))):
        words[again] = np.frombuffer(source.take(8 * len(again)), dtype="<u8")
    return (words % np.uint64(high)).astype(np.int64)
