"""Uploads of every kind either work or are refused with one sentence."""

from __future__ import annotations

import base64
import io
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image
from tests.web.conftest import OURS

from splitveil.core.errors import DataError
from splitveil.web.leak.pictures import LARGEST_BYTES, decode_upload, feature_uri, for_model, picture_uri


def encoded(picture: Image.Image, kind: str = "PNG", **options) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def halves(mode: str = "RGB", size: tuple[int, int] = (40, 20)) -> Image.Image:
    """Left half bright, right half dark."""
    picture = Image.new("L", size, 30)
    picture.paste(220, (0, 0, size[0] // 2, size[1]))
    return picture.convert(mode)


def bright_left(picture: Image.Image) -> bool:
    values = np.asarray(picture.convert("L"))
    return values[:, : values.shape[1] // 3].mean() > values[:, -values.shape[1] // 3 :].mean() + 80


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "ICO", "TGA"])
def test_common_formats(kind):
    picture = decode_upload(encoded(halves(), kind))
    assert picture.mode == "RGB"
    assert bright_left(picture)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "I", "F"])
def test_modes(mode):
    if mode in {"I;16", "I", "F"}:
        values = np.asarray(halves("L")).astype({"I;16": np.uint16, "I": np.int32, "F": np.float32}[mode])
        scale = {"I;16": 257, "I": 257, "F": 1 / 255}[mode]
        picture = Image.fromarray((values * scale).astype(values.dtype))
    else:
        picture = halves(mode)
    kind = "PNG" if mode not in {"CMYK", "F", "I"} else "TIFF"
    found = decode_upload(encoded(picture, kind))
    assert bright_left(found)
    if mode != "1":
        values = np.asarray(found.convert("L"))
        assert abs(int(values[10, 3]) - 220) < 6, "16 bits are scaled, not cut off"


def test_transparent_parts_are_white():
    picture = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    assert np.asarray(decode_upload(encoded(picture))).min() == 255


def test_exif_rotation_is_followed():
    exif = Image.Exif()
    exif[274] = 3  # upside down and mirrored twice: turned by 180 degrees
    assert not bright_left(decode_upload(encoded(halves(), "JPEG", exif=exif)))
    exif[274] = 6
    assert decode_upload(encoded(halves(), "JPEG", exif=exif)).size == (20, 40)


def test_large_pictures_are_reduced():
    assert max(decode_upload(encoded(Image.new("L", (3000, 100)))).size) == 512


def test_animated_pictures_give_their_first_frame():
    frames = [halves("P"), halves("P").transpose(Image.Transpose.FLIP_LEFT_RIGHT)]
    content = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert bright_left(decode_upload(content))


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that claims to be huge."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b"")


WHOLE = encoded(Image.effect_noise((64, 64), 80))
BAD = {
    "empty": b"",
    "text": b"hello, this is no picture",
    "html": b"<html><script>alert(1)</script></html>",
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg"/>',
    "pdf": b"%PDF-1.4\n",
    "truncated": WHOLE[: len(WHOLE) // 2],
    "head only": WHOLE[:30],
    "truncated jpeg": encoded(Image.effect_noise((64, 64), 80), "JPEG")[:400],
    "bomb": bomb(60_000, 60_000),
    "wide bomb": bomb(2**31 - 1, 1),
    "too long": bytes(LARGEST_BYTES + 1),
    "zeros": bytes(1000),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_picture_is_refused_in_one_sentence(name):
    with pytest.raises(DataError) as caught:
        decode_upload(BAD[name])
    assert caught.value.message.endswith(".")
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 200


def test_upload_over_http(client, tmp_path):
    app = client(tmp_path)
    good = app.post("/api/leak/picture", content=encoded(halves()), headers=OURS)
    assert good.status_code == 200
    assert good.json()["shown"].startswith("data:image/png;base64,")
    for content in (BAD["text"], BAD["too long"]):
        bad = app.post("/api/leak/picture", content=content, headers=OURS)
        assert bad.status_code == 400
        assert bad.json()["error"]
    assert app.post("/api/leak/picture", content=encoded(halves())).status_code == 403


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 20, 40)])
def test_pictures_are_brought_to_the_models_shape(shape):
    tensor = for_model(halves(), shape)
    assert tensor.shape == (1, *shape)
    assert 0 <= float(tensor.min()) < 0.2
    assert 0.8 < float(tensor.max()) <= 1
    assert float(tensor[..., : shape[2] // 3].mean()) > float(tensor[..., -shape[2] // 3 :].mean()) + 0.3


def opened(uri: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_come_back_as_they_were(channels):
    values = torch.randint(0, 256, (channels, 5, 7))
    shown = np.asarray(opened(picture_uri(values / 255)))
    expected = values[0] if channels == 1 else values.permute(1, 2, 0)
    assert np.array_equal(shown, expected.numpy())


def test_feature_is_shown_channel_by_channel():
    feature = torch.stack([torch.full((2, 3), level) for level in (0.0, 0.5, 1.0)])
    sheet = np.asarray(opened(feature_uri(feature, 0.0, 1.0)))
    assert sheet.shape == (5, 7)  # two by two tiles with a line between
    assert (sheet[:2, :3].max(), sheet[0, 4], sheet[3, 0]) == (0, 128, 255)


@pytest.mark.parametrize("shape", [(10,), (2, 5), (100, 2, 2)])
def test_features_of_any_shape_can_be_shown(shape):
    assert opened(feature_uri(torch.rand(shape), 0.0, 0.0)).width > 0
