"""Decode single picture files to uint8 arrays, or say which file cannot be decoded."""

from __future__ import annotations

from typing import IO

import numpy as np
from PIL import Image, ImageOps

from splitveil.core.errors import DataError

GREY = ("1", "L", "LA")
DEEP = ("I", "F")  # 16 or 32 bits for each value, in several spellings that begin so


def header(file: str | IO[bytes], where: str) -> tuple[bool, tuple[int, int]]:
    """Whether a picture is grey, and its (width, height), without decoding it."""
    try:
        with Image.open(file) as picture:
            if picture.mode.startswith(DEEP):
                raise DataError(f"{where} has more than 8 bits for each value.", "Convert it to 8 bits first.")
            turned = picture.getexif().get(274, 1) >= 5  # EXIF orientations 5 to 8 swap the sides
            width, height = picture.size
            return picture.mode in GREY, (height, width) if turned else (width, height)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{where} is not a readable picture: {error}.", "Remove or replace it.") from None


def decode(file: str | IO[bytes], where: str, *, grey: bool, size: int | tuple[int, int] | None = None) -> np.ndarray:
    """A picture as uint8 [ch, h, w]; with `size`, the side of a square or (w, h), the largest middle part of that form
    brought to it. Transparency is dropped.
    """
    target = (size, size) if isinstance(size, int) else size
    try:
        with Image.open(file) as picture:
            upright = ImageOps.exif_transpose(picture).convert("L" if grey else "RGB")
            if target is not None and upright.size != target:
                upright = ImageOps.fit(upright, target, Image.Resampling.BILINEAR)
            values = np.asarray(upright)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{where} is not a readable picture: {error}.", "Remove or replace it.") from None
    return values[None] if grey else np.moveaxis(values, -1, 0)
