"""Decode single picture files to uint8 arrays, or say which file cannot be decoded."""

from __future__ import annotations

from typing import IO, NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from splitveil.core.errors import DataError

GREY = ("1", "L", "LA")
WITH_ALPHA = ("LA", "PA", "RGBA", "La", "RGBa")
DEEP = ("I", "F")  # 16 or 32 bits for each value, in several spellings that begin so


class Header(NamedTuple):
    """What a file says of its picture; `size` is (width, height)."""

    grey: bool
    size: tuple[int, int]
    transparent: bool


def header(file: str | IO[bytes], where: str, formats: tuple[str, ...] | None = None) -> Header:
    """What a picture is, without decoding it; with `formats`, as Pillow names them, others are refused."""
    try:
        with Image.open(file, formats=formats) as picture:
            if picture.mode.startswith(DEEP):
                raise DataError(f"{where} has more than 8 bits for each value.", "Convert it to 8 bits first.")
            turned = picture.getexif().get(274, 1) >= 5  # EXIF orientations 5 to 8 swap the sides
            width, height = picture.size
            transparent = picture.mode in WITH_ALPHA or "transparency" in picture.info
            return Header(picture.mode in GREY, (height, width) if turned else (width, height), transparent)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise _unreadable(where, error, formats) from None


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
        raise _unreadable(where, error) from None
    return values[None] if grey else np.moveaxis(values, -1, 0)


def _unreadable(where: str, error: Exception, formats: tuple[str, ...] | None = None) -> DataError:
    wanted = f" ({' or '.join(formats)})" if formats else ""
    # Pillow's sentence for what is no picture only repeats the name of the file
    why = "" if isinstance(error, UnidentifiedImageError) else f": {str(error).rstrip('.')}"
    return DataError(f"{where} is not a readable picture{wanted}{why}.", "Remove or replace it.")
