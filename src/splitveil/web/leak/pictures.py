"""Pictures from visitors, and pictures for the page."""

from __future__ import annotations

import base64
import io
import math
import struct
import warnings

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from splitveil.audit.gallery import as_image, to_uint8
from splitveil.core.errors import DataError, reason

LARGEST_BYTES = 20 * 2**20
LARGEST_PIXELS = 50_000_000
KEPT_SIDE = 512  # no model here sees more
MOST_CHANNELS = 64


def decode_upload(content: bytes) -> Image.Image:
    """Any picture that Pillow reads, upright, as 8-bit RGB of at most 512 pixels a side; or one sentence why not."""
    if len(content) > LARGEST_BYTES:
        raise DataError(f"The file has more than {LARGEST_BYTES // 2**20} MB.", "Use a smaller picture.")
    if not content:
        raise DataError("The file is empty.", "Use a picture.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # large or odd files: the lines below decide
            with Image.open(io.BytesIO(content)) as picture:
                width, height = picture.size
                if width * height > LARGEST_PIXELS:
                    raise DataError(
                        f"The picture has {width} x {height} pixels, more than are opened here.", "Use a smaller one."
                    )
                picture.draft("RGB", (KEPT_SIDE * 2, KEPT_SIDE * 2))  # lets JPEG decode small at once
                upright = ImageOps.exif_transpose(_eight_bit(picture))
                upright.thumbnail((KEPT_SIDE, KEPT_SIDE))
                return _on_white(upright)
    except DataError:
        raise
    except UnidentifiedImageError:
        raise DataError("This file is not a picture that can be read.", "Use PNG, JPEG, WebP, GIF or BMP.") from None
    except (
        OSError,
        SyntaxError,
        ValueError,
        EOFError,
        IndexError,
        KeyError,
        TypeError,
        AttributeError,
        ZeroDivisionError,
        OverflowError,
        MemoryError,
        struct.error,
        Image.DecompressionBombError,
    ) as error:
        # decoders of damaged files fail in many ways
        why = reason(error, type(error).__name__).rstrip(".")[:120]
        raise DataError(f"The picture is damaged: {why}.", "Use another file.") from None  # fmt: skip


def _eight_bit(picture: Image.Image) -> Image.Image:
    """16 bits, 32 bits or floats brought to 0..255; other modes as they are. EXIF stays with the picture."""
    if not picture.mode.startswith(("I", "F")):
        picture.load()
        return picture
    values = np.asarray(picture).astype(np.float64)
    values = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    top = float(values.max(initial=0.0))
    full = 1.0 if top <= 1 else 255.0 if top <= 255 else 65535.0 if top <= 65535 else top
    small = Image.fromarray((values.clip(0) * (255.0 / full)).round().astype(np.uint8))
    small.info.update({key: value for key, value in picture.info.items() if key == "exif"})
    return small


def _on_white(picture: Image.Image) -> Image.Image:
    """Transparent parts over white, as most viewers show them."""
    if picture.mode in ("LA", "PA", "RGBA", "La", "RGBa") or "transparency" in picture.info:
        clear = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear)
    return picture.convert("RGB")


def for_model(picture: Image.Image, image_shape: tuple[int, ...]) -> Tensor:
    """The middle of a picture as the model takes it: floats in [0, 1], [1, ch, h, w]."""
    channels, height, width = image_shape
    fitted = ImageOps.fit(picture.convert("L" if channels == 1 else "RGB"), (width, height), Image.Resampling.LANCZOS)
    values = torch.from_numpy(np.array(fitted)).float() / 255
    values = values[None] if channels == 1 else values.permute(2, 0, 1)
    return values[None]


def picture_uri(picture: Tensor) -> str:
    """A picture [ch, h, w] in [0, 1] as a data URI."""
    return _png(as_image(to_uint8(picture)))


def feature_uri(feature: Tensor, low: float, high: float) -> str:
    """What was sent, channel by channel in a grid of tiles; `low` is black and `high` is white.

    A feature without positions is shown as one square.
    """
    if feature.ndim != 3:
        flat = feature.detach().flatten()
        side = math.ceil(math.sqrt(len(flat)))
        feature = torch.nn.functional.pad(flat, (0, side * side - len(flat)), value=low).view(1, side, side)
    shown = ((feature.detach()[:MOST_CHANNELS] - low) / max(high - low, 1e-12)).clamp(0, 1)
    count, height, width = shown.shape
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    gap = 1
    sheet = torch.zeros(rows * (height + gap) - gap, columns * (width + gap) - gap)
    for place, tile in enumerate(shown):
        row, column = divmod(place, columns)
        top, left = row * (height + gap), column * (width + gap)
        sheet[top : top + height, left : left + width] = tile
    return _png(Image.fromarray((sheet * 255).round().to(torch.uint8).numpy()))


def _png(picture: Image.Image) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", compress_level=1)  # speed matters here, bytes do not: the picture goes over loopback
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
