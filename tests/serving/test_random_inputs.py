"""The laws of the random inputs, and that secure draws are secure."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from scipy import stats

from splitveil.core.errors import InputError
from splitveil.serving import random_inputs
from splitveil.serving.manifest import RandomInput
from splitveil.serving.random_inputs import SecureSource, SeededSource, draw, integers, normal, uniform

MANY = 40_001  # odd: normal values come in pairs
ENOUGH = 1e-3  # the seed is fixed, so a test that passes once passes always


def test_normal_draws_are_normal() -> None:
    values = normal(MANY, SeededSource(3))
    assert values.dtype == np.float32
    assert values.shape == (MANY,)
    assert stats.kstest(values.astype(float), "norm").pvalue > ENOUGH
    assert abs(values.mean()) < 4 / math.sqrt(MANY)
    assert abs(values.var() - 1) < 4 * math.sqrt(2 / MANY)
    pairs = values[: MANY // 2], values[MANY // 2 + 1 :]  # cosine and sine of the same angle
    assert abs(np.corrcoef(*pairs)[0, 1]) < 4 / math.sqrt(MANY / 2)


def test_uniform_draws_are_uniform_and_never_one() -> None:
    values = uniform(MANY, SeededSource(4))
    assert values.dtype == np.float32
    assert stats.kstest(values.astype(float), "uniform").pvalue > ENOUGH
    assert values.min() >= 0


class Fixed:
    """A source of the same byte."""

    def __init__(self, byte: int) -> None:
        self.byte = byte

    def take(self, count: int) -> bytes:
        return bytes([self.byte]) * count


@pytest.mark.parametrize("byte", [0, 255])
def test_the_ends_of_the_range_are_finite(byte: int) -> None:
    assert np.isfinite(normal(2, Fixed(byte))).all()
    (value,) = uniform(1, Fixed(byte))
    assert 0 <= value < 1
    assert float(value) == (0 if byte == 0 else 1 - 2.0**-24)


def test_normal_draws_follow_box_and_muller() -> None:
    class Halves:
        def take(self, count: int) -> bytes:
            assert count == 32
            u, v = (0.25, 0.5), (0.125, 0.75)
            return b"".join(int(x * 2**64).to_bytes(8, "little") for x in (*u, *v))

    expected = [math.sqrt(-2 * math.log(1 - u)) for u in (0.25, 0.5)]
    expected = [
        expected[0] * math.cos(2 * math.pi * 0.125),
        expected[1] * math.cos(2 * math.pi * 0.75),
        expected[0] * math.sin(2 * math.pi * 0.125),
    ]
    np.testing.assert_allclose(normal(3, Halves()), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("high", [1, 2, 3, 7, 8])
def test_integers_are_equally_frequent(high: int) -> None:
    values = integers(8_000, high, SeededSource(5))
    assert values.dtype == np.int64
    counts = np.bincount(values, minlength=high)
    assert len(counts) == high
    if high > 1:
        assert stats.chisquare(counts).pvalue > ENOUGH


def test_the_incomplete_last_round_is_drawn_again() -> None:
    class Twice:
        words = iter([(1 << 64) - 1, 5])  # 2^64 - 1 is the one word beyond the last multiple of 3

        def take(self, count: int) -> bytes:
            return next(self.words).to_bytes(8, "little")

    assert integers(1, 3, Twice()).tolist() == [5 % 3]


def test_draws_have_the_names_and_shapes_of_the_inputs() -> None:
    inputs = [
        RandomInput(name="a", law="normal", shape=(2, 3)),
        RandomInput(name="b", law="uniform", shape=(4,)),
        RandomInput(name="c", law="integers", shape=(), high=5),
    ]
    drawn = draw(inputs, 6)
    assert {name: (value.shape, str(value.dtype)) for name, value in drawn.items()} == {
        "a": ((6, 2, 3), "float32"),
        "b": ((6, 4), "float32"),
        "c": ((6,), "int64"),
    }
    assert drawn["c"].max() < 5
    assert draw(inputs, 0)["a"].shape == (0, 2, 3)
    with pytest.raises(InputError, match="cannot be -1 pictures"):
        draw(inputs, -1)


def test_a_seed_repeats_itself_and_nothing_else_does() -> None:
    one = [RandomInput(name="a", law="normal", shape=(100,))]

    def first(source: random_inputs.Source) -> np.ndarray:
        return draw(one, 1, source)["a"]

    assert (first(SeededSource(1)) == first(SeededSource(1))).all()
    assert not (first(SeededSource(1)) == first(SeededSource(2))).any()
    source = SeededSource(1)
    assert not (first(source) == first(source)).any()
    assert not (first(SecureSource()) == first(SecureSource())).any()


def test_secure_draws_come_from_the_operating_system_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def urandom(count: int) -> bytes:
        asked.append(count)
        return b"\x55" * count

    monkeypatch.setattr(os, "urandom", urandom)
    np.random.seed(0)
    values = draw([RandomInput(name="a", law="normal", shape=(8,))], 2)["a"]
    assert asked == [2 * 8 * 8]  # 64 bits for each value
    assert len(np.unique(values)) == 2  # cosine and sine of the one word there is: nothing else came in
