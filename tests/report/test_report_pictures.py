"""Only pictures of the run itself come into the page, and only if they are pictures."""

from __future__ import annotations

import base64
import io
import struct
import zlib

import pytest
from PIL import Image

from splitveil.report.pictures import LARGEST_SIDE, data_uri, picture_path


def save(path, size=(28, 28)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, 77).save(path)
    return path


def test_picture_is_embedded_byte_for_byte(tmp_path):
    path = save(tmp_path / "a.png")
    uri = data_uri(path)
    assert uri is not None
    assert base64.b64decode(uri.removeprefix("data:image/png;base64,")) == path.read_bytes()


def test_large_picture_is_reduced(tmp_path):
    uri = data_uri(save(tmp_path / "a.png", (400, 200)))
    assert uri is not None
    with Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1]))) as image:
        assert image.size == (LARGEST_SIDE, LARGEST_SIDE // 2)


@pytest.mark.parametrize("kind", ["text", "torn", "empty", "header", "svg", "jpeg"])
def test_what_is_not_a_png_is_left_out(tmp_path, kind):
    path = save(tmp_path / "a.png")
    whole = path.read_bytes()
    jpeg = io.BytesIO()
    Image.new("L", (8, 8)).save(jpeg, "JPEG")
    content = {
        "text": b"hello",
        "torn": whole[:-25],
        "empty": b"",
        "header": whole[:8],
        "svg": b"<svg onload='alert(1)'/>",
        "jpeg": jpeg.getvalue(),
    }
    path.write_bytes(content[kind])
    assert data_uri(path) is None


def test_decompression_bomb_is_left_out(tmp_path):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    bomb = (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )
    (tmp_path / "a.png").write_bytes(bomb)
    assert data_uri(tmp_path / "a.png") is None


@pytest.mark.parametrize("name", ["..", ".", "", "../../secret", "a/b", "a\\b", "a\0b"])
def test_attack_names_do_not_lead_out(tmp_path, name):
    save(tmp_path / "secret" / "00001.png")
    save(tmp_path / "run" / "00001.png")
    (tmp_path / "run" / "audit").mkdir()
    assert picture_path(tmp_path / "run", name, 1) is None


def test_links_do_not_lead_out(tmp_path):
    save(tmp_path / "secret" / "00001.png")
    (tmp_path / "run" / "audit").mkdir(parents=True)
    (tmp_path / "run" / "audit" / "decoder").symlink_to(tmp_path / "secret")
    assert picture_path(tmp_path / "run", "decoder", 1) is None
    own = save(tmp_path / "run" / "audit" / "other" / "00001.png")
    assert picture_path(tmp_path / "run", "other", 1) == own
