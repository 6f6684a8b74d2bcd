"""Pictures as data URIs, within a budget."""

from __future__ import annotations

import base64
import io
import struct
import warnings
from pathlib import Path

from PIL import Image

BUDGET = 6_500_000  # bytes of base64 in one page: leaves room for everything else below 10 MB
LARGEST_SIDE = 128  # larger pictures are shown reduced: nobody sees more in the gallery
LARGEST_FILE = 32 * 2**20


def picture_path(run: Path, folder: str, index: int) -> Path | None:
    """`audit/FOLDER/00012.png` of a run, or None when the name would lead out of the run folder."""
    if not folder or folder in {".", ".."} or any(mark in folder for mark in "/\\\0"):
        return None
    path = run / "audit" / folder / f"{index:05d}.png"
    try:
        inside = path.resolve().is_relative_to(run.resolve())
        return path if inside and path.is_file() else None
    except OSError:
        return None


def data_uri(path: Path) -> str | None:
    """The picture for an <img>; None when the file is not a readable PNG."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            return None
        content = path.read_bytes()
    except OSError:
        return None
    try:
        content = _checked(content)
    except (OSError, ValueError, SyntaxError, struct.error, Image.DecompressionBombError):
        return None
    return "data:image/png;base64," + base64.b64encode(content).decode()


def _checked(content: bytes) -> bytes:
    """The same bytes when they decode and are small; otherwise a reduced copy."""
    width, height = struct.unpack(">II", content[16:24])  # where a PNG has them; another format is refused below
    if width * height > 50_000_000:
        raise ValueError("too many pixels")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the line above has already decided
        with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
            image.load()
            if max(width, height) <= LARGEST_SIDE:
                return content
            image.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
            small = io.BytesIO()
            image.save(small, "PNG", optimize=True)
            return small.getvalue()
