"""The wire format: what goes in comes out, and nothing else is taken for a message."""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from splitveil.serving.wire import PIXELS, Kind, Message, WireError, decode, encode

ARTEFACT = bytes(range(16))


def message(values, bits=32, kind=Kind.FEATURES, **options):
    return encode(kind, np.asarray(values, np.float32), artefact=ARTEFACT, request=7, bits=bits, **options)


def resealed(data: bytes) -> bytes:
    """The same bytes with a right checksum: only what the fields say can be wrong then."""
    return data[:-4] + struct.pack("<I", zlib.crc32(data[:-4]))


def test_golden_bytes():
    """Written by hand from the table in docs/serving.md: a change of the format needs a new version."""
    expected = (
        b"SVZ1" + bytes([1, 1, 1, 2]) + ARTEFACT + bytes([7, 0, 0, 0, 0, 0, 0, 0])
        + bytes([1, 0, 0, 0, 2, 0, 0, 0]) + bytes([8, 0, 0, 0])
        + bytes.fromhex("0000803f000000c0")
    )  # fmt: skip
    assert message([[1.0, -2.0]]) == expected + struct.pack("<I", zlib.crc32(expected))


def test_golden_bytes_of_a_quantised_message():
    expected = (
        b"SVZ1" + bytes([1, 1, 3, 1]) + ARTEFACT + bytes([7, 0, 0, 0, 0, 0, 0, 0]) + bytes([3, 0, 0, 0])
        + struct.pack("<d", 2.0) + struct.pack("<d", -10.0)
        + bytes([3, 0, 0, 0]) + bytes([0, 5, 255])
    )  # fmt: skip
    assert message([-10.0, 0.0, 500.0], bits=8) == expected + struct.pack("<I", zlib.crc32(expected))


finite = arrays.arrays(
    np.float32,
    arrays.array_shapes(min_dims=1, max_dims=4, max_side=4),
    elements=st.floats(-60000, 60000, width=32),
)


@given(finite, st.sampled_from(list(Kind)[:3]), st.integers(0, 2**64 - 1))
def test_32_bits_come_out_to_the_bit(values, kind, request):
    found = decode(encode(kind, values, artefact=ARTEFACT, request=request))
    assert (found.kind, found.artefact, found.request, found.bits) == (kind, ARTEFACT, request, 32)
    assert found.values.dtype == np.float32
    assert found.values.tobytes() == values.tobytes()
    assert found.values.shape == values.shape


@given(finite)
def test_16_bits_are_the_nearest_halves(values):
    found = decode(message(values, bits=16))
    assert found.bits == 16
    np.testing.assert_array_equal(found.values, values.astype(np.float16).astype(np.float32))


@given(finite)
def test_8_bits_are_within_half_a_step(values):
    found = decode(message(values, bits=8))
    assert found.bits == 8
    step = (float(values.max()) - float(values.min())) / 255
    error = np.abs(found.values.astype(np.float64) - values.astype(np.float64)).max()
    assert error <= step / 2 * (1 + 1e-6) + np.abs(values).max() * 2**-23  # the last: rounding to float32


def test_8_bits_take_a_quarter_of_the_payload():
    values = np.linspace(-1, 1, 4096, dtype=np.float32)
    long, short = len(message(values)), len(message(values, bits=8))
    assert long - short == 3 * 4096 - 16


def test_pictures_of_8_bits_lose_nothing():
    pixels = np.arange(256, dtype=np.float32) / np.float32(255)
    found = decode(message(pixels, bits=8, kind=Kind.PICTURES, affine=PIXELS))
    np.testing.assert_array_equal(found.values, pixels)


@pytest.mark.parametrize("value", [-0.1, 1.1, -1 / 255, 256 / 255])
def test_values_beyond_a_given_scale_are_refused(value):
    with pytest.raises(WireError, match="out of the range"):
        message([0.5, value], bits=8, affine=PIXELS)


def test_equal_values_survive_8_bits():
    np.testing.assert_array_equal(decode(message([0.3, 0.3], bits=8)).values, np.float32([0.3, 0.3]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("bits", [32, 16, 8])
def test_values_that_are_not_finite_are_never_sent(bad, bits):
    with pytest.raises(WireError, match="finite"):
        message([1.0, bad], bits=bits)


@pytest.mark.parametrize("bits", [32, 16])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_never_taken(bad, bits):
    dtype = {32: "<f4", 16: "<f2"}[bits]
    data = message([1.0, 2.0], bits=bits)
    size = np.dtype(dtype).itemsize
    forged = data[: -4 - size] + np.array([bad], dtype).tobytes() + data[-4:]
    with pytest.raises(WireError, match="finite"):
        decode(resealed(forged))


@pytest.mark.parametrize("scale", [np.nan, np.inf, -1.0])
def test_scales_that_make_no_sense_are_refused(scale):
    data = bytearray(message([1.0, 2.0], bits=8))
    data[36:44] = struct.pack("<d", scale)
    with pytest.raises(WireError, match="scale"):
        decode(resealed(bytes(data)))


def test_a_scale_that_overflows_is_refused():
    data = bytearray(message([1.0, 2.0], bits=8))
    data[36:44] = struct.pack("<d", 1e300)
    with pytest.raises(WireError, match="finite"):
        decode(resealed(bytes(data)))


def test_too_large_for_16_bits():
    with pytest.raises(WireError, match="Use 32 bits"):
        message([70000.0], bits=16)


@pytest.mark.parametrize("values", [np.zeros(0), np.zeros((2, 0)), np.float32(1), np.zeros((1,) * 9)])
def test_shapes_that_no_message_has(values):
    with pytest.raises(WireError, match="shape"):
        message(values)


def test_other_widths_and_names_are_refused():
    with pytest.raises(WireError, match="4 bits"):
        message([1.0], bits=4)
    with pytest.raises(WireError, match="16 bytes"):
        encode(Kind.FEATURES, np.ones(1, np.float32), artefact=b"short", request=0)


def forged(place: int, value: bytes) -> bytes:
    data = bytearray(message([[1.0, 2.0], [3.0, 4.0]]))
    data[place : place + len(value)] = value
    return resealed(bytes(data))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "cut off"),
        (b"GET / HTTP/1.1\r\n" + bytes(60), "begins otherwise"),
        (b"\x80\x04\x95" + bytes(60), "begins otherwise"),  # a pickle
        (forged(4, b"\x02"), "version 2"),
        (forged(5, b"\x00"), "unknown kind"),
        (forged(5, b"\x09"), "unknown kind"),
        (forged(6, b"\x07"), "or type"),
        (forged(5, b"\x04"), r"unknown kind \(4\)"),
        (forged(6, b"\x00"), r"or type \(0\)"),
        (forged(7, b"\x00"), "0 sides"),
        (forged(7, b"\xff"), "255 sides"),
        (forged(7, b"\x08"), "header|payload"),
        (forged(32, b"\x03"), "do not fill"),  # three rows instead of two
        (forged(32, b"\x00"), "do not fill"),
        (forged(32, b"\xff\xff\xff\xff\xff\xff\xff\xff"), "do not fill"),  # a product that would overflow 64 bits
        (resealed(forged(32, struct.pack("<III", 0, 2, 0))[:44] + bytes(4)), "do not fill"),  # no pictures at all
        (forged(40, b"\xff\xff\xff\xff"), "payload"),
        (forged(40, b"\x00"), "payload"),
        (message([1.0])[:-1], "checksum"),
        (message([1.0]) + b"\0", "checksum"),
        (resealed(message([1.0]) + bytes(4)), "payload"),
    ],
)
def test_malformed(data, says):
    with pytest.raises(WireError, match=says) as caught:
        decode(data)
    assert "\n" not in str(caught.value)
    assert caught.value.message.endswith(".")


@given(st.binary(max_size=200))
def test_noise_is_no_message(data):
    with pytest.raises(WireError):
        decode(data)


@given(st.data(), st.sampled_from([32, 16, 8]))
def test_one_flipped_bit_is_noticed(data, bits):
    """crc32 sees every single flipped bit."""
    good = bytearray(message([[0.5, -1.5, 2.0]], bits=bits))
    place = data.draw(st.integers(0, len(good) * 8 - 1))
    good[place // 8] ^= 1 << place % 8
    with pytest.raises(WireError):
        decode(bytes(good))


@given(st.data(), st.sampled_from([32, 16, 8]))
def test_a_forger_who_knows_the_checksum_gets_a_message_or_a_sentence(data, bits):
    """Any other exception, or values that are not finite, would be a hole."""
    good = bytearray(message([[0.5, -1.5, 2.0]], bits=bits))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 5))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, 8))
    candidate = resealed(bytes(good[: len(good) - cut]))
    with suppress(WireError):
        found = decode(candidate)
        assert isinstance(found, Message)
        assert np.isfinite(found.values).all()
        assert found.values.dtype == np.float32


@given(st.integers(0, 60))
def test_every_cut_is_noticed(length):
    data = message([[0.5, -1.5, 2.0]])
    with pytest.raises(WireError):
        decode(data[: min(length, len(data) - 1)])
