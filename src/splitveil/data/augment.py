"""Crop, flip and rotation on the device: vectorised, seeded, with fixed shapes and without a look at the host.

Random numbers are drawn for all pictures first, then the pictures are moved in pieces that bound the memory; the result
does not depend on the size of the pieces.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from splitveil.core.errors import InputError

PIECE = 8192  # pictures moved at once: 50,000 colour pictures of 32 x 32 need a few hundred MB of scratch, not GB


@dataclass(frozen=True)
class Augmentation:
    """How pictures may be moved: shift by up to `crop` pixels each way, mirror, turn by up to `rotate` degrees."""

    crop: int = 0
    flip: bool = False
    rotate: float = 0.0

    def __post_init__(self) -> None:
        if self.crop < 0:
            raise InputError(f"The padding of a crop cannot be {self.crop}.", "Give 0 or more pixels.")
        if not 0 <= self.rotate <= 180:
            raise InputError(f"A rotation cannot reach {self.rotate} degrees.", "Give 0 to 180.")


def to_float(images: Tensor) -> Tensor:
    """uint8 pictures as float32 in [0, 1], the form in which every model takes them."""
    return images.to(torch.float32) / 255


def augment(images: Tensor, augmentation: Augmentation, generator: torch.Generator) -> Tensor:
    """Move every picture by its own random crop, flip and rotation; zeros come in from outside.

    With u, v the pixel coordinates relative to the centre, f in {-1, 1} the flip, (du, dv) the crop's integer shift in
    [-crop, crop] and a the angle, uniform in [-rotate, rotate]:

        out(u, v) = in(f·s + du, t + dv),  s = u cos a + v sin a,  t = -u sin a + v cos a,  if |s| < w/2 and |t| < h/2

    and 0 elsewhere, that is: crop, then flip, then rotate what the crop has left, read from the original in one go. A
    turned picture takes the nearest pixel, as the released CEM code does: interpolation would blur every training
    picture, but no test picture.

    Shapes: images [B, ch, h, w], uint8 or float -> the same shape, dtype and device. `generator` lives on that device.
    Edge cases: nothing to do returns `images` itself.
    """
    if images.ndim != 4:
        raise InputError(f"Pictures must be [B, ch, h, w], not {list(images.shape)}.")
    crop, flip, angle = _draw(len(images), augmentation, generator, images.device)
    if len(images) == 0 or (crop is None and flip is None and angle is None):
        return images
    pieces = []
    for start in range(0, len(images), PIECE):
        piece = slice(start, start + PIECE)
        of_piece = [None if values is None else values[piece] for values in (crop, flip, angle)]
        pieces.append(_move(images[piece], augmentation.crop, *of_piece))
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def _draw(
    count: int, augmentation: Augmentation, generator: torch.Generator, device: torch.device
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Shift (dv, du) [B, 2], flip [B] and angle in radians [B]; None for what is switched off."""
    crop = flip = angle = None
    if augmentation.crop:
        reach = augmentation.crop
        crop = torch.randint(-reach, reach + 1, (count, 2), generator=generator, device=device)
    if augmentation.flip:
        flip = torch.randint(0, 2, (count,), generator=generator, device=device) == 1
    if augmentation.rotate:
        angle = torch.rand(count, generator=generator, device=device) * 2 - 1
        angle = angle * math.radians(augmentation.rotate)
    return crop, flip, angle


def _move(images: Tensor, padding: int, crop: Tensor | None, flip: Tensor | None, angle: Tensor | None) -> Tensor:
    if angle is not None:
        return _sample(images, crop, flip, angle)
    if crop is not None:
        images = _crop(images, padding, crop)
    if flip is not None:
        images = torch.where(flip[:, None, None, None], images.flip(-1), images)
    return images


def _crop(images: Tensor, padding: int, crop: Tensor) -> Tensor:
    """Copy one window of each zero-padded picture."""
    height, width = images.shape[2:]
    padded = F.pad(images, (padding, padding, padding, padding))
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # a view [B, ch, 2p+1, 2p+1, h, w]
    rows, columns = (crop + padding).unbind(1)
    return windows[torch.arange(len(images), device=images.device), :, rows, columns]  # [B, ch, h, w]


def _sample(images: Tensor, crop: Tensor | None, flip: Tensor | None, angle: Tensor) -> Tensor:
    """All three moves in one sampling. `grid_sample` wants 2u/w and 2v/h: -1 and 1 are the outer edges."""
    height, width = images.shape[2:]
    dtype = torch.float64 if images.dtype == torch.float64 else torch.float32  # half precision blurs coordinates
    u = torch.arange(width, device=images.device, dtype=dtype) - (width - 1) / 2
    v = (torch.arange(height, device=images.device, dtype=dtype) - (height - 1) / 2)[:, None]
    cosine, sine = angle.to(dtype).cos()[:, None, None], angle.to(dtype).sin()[:, None, None]
    source_u = u * cosine + v * sine  # [B, h, w]
    source_v = v * cosine - u * sine
    # the crop comes first: what it has cut off does not come back into the corners of a turned picture
    inside = (source_u.abs() < width / 2) & (source_v.abs() < height / 2)
    if flip is not None:
        source_u = torch.where(flip[:, None, None], -source_u, source_u)
    if crop is not None:
        source_u = source_u + crop[:, 1, None, None]
        source_v = source_v + crop[:, 0, None, None]
    grid = torch.stack((source_u * (2 / width), source_v * (2 / height)), dim=-1)  # [B, h, w, 2]
    moved = F.grid_sample(images.to(dtype), grid, mode="nearest", padding_mode="zeros", align_corners=False)
    return (moved * inside[:, None]).to(images.dtype)
