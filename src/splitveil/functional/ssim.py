"""Structural similarity (Wang et al. 2004) as SPEC 8.2 fixes it.

Gaussian window 11 x 11 with standard deviation 1.5, zero padding 5, per channel, C1 = 1e-4, C2 = 9e-4, pictures in
[0, 1]. The window is separable and zero padding cuts it off at the border, so blurring is two products with banded
matrices: exact for any picture size (1 pixel too) and free of the reduced precision of convolutions on GPUs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from splitveil.core.errors import InputError

RADIUS = 5
WINDOW_SIGMA = 1.5
C1, C2 = 1e-4, 9e-4


def ssim(x: Tensor, y: Tensor) -> Tensor:
    """Structural similarity of each pair of pictures: the mean of its map over channels and pixels.

        SSIM = (2 μx μy + C1)(2 cov + C2) / ((μx² + μy² + C1)(var_x + var_y + C2))

    Shapes: x, y [B, ch, h, w] floats in [0, 1] -> [B]. Differentiable. Computed in at least float32.

    >>> x = torch.rand(2, 3, 8, 8)
    >>> ssim(x, x).allclose(torch.ones(2))
    True
    """
    if x.shape != y.shape or x.ndim != 4:
        raise InputError(f"SSIM compares pictures [B, ch, h, w] of one shape, not {list(x.shape)} and {list(y.shape)}.")
    dtype = torch.promote_types(torch.promote_types(x.dtype, y.dtype), torch.float32)
    with torch.autocast(x.device.type, enabled=False):
        x, y = x.to(dtype), y.to(dtype)
        rows = _window(x.shape[2], x)
        columns = rows.T if x.shape[2] == x.shape[3] else _window(x.shape[3], x).T
        stacked = torch.stack([x, y, x * x, y * y, x * y])  # [5, B, ch, h, w]
        mean_x, mean_y, square_x, square_y, product = rows @ stacked @ columns
        var_x, var_y, cov = square_x - mean_x**2, square_y - mean_y**2, product - mean_x * mean_y
        similarity = (2 * mean_x * mean_y + C1) * (2 * cov + C2)
        similarity = similarity / ((mean_x**2 + mean_y**2 + C1) * (var_x + var_y + C2))
        return similarity.mean(dim=(1, 2, 3))


def _window(side: int, like: Tensor) -> Tensor:
    """Banded matrix [side, side] whose row i holds the window centred at i; what falls outside meets zeros."""
    place = torch.arange(side, device=like.device)
    distance = (place[:, None] - place[None, :]).to(like.dtype)
    weights = torch.exp(-(distance**2) / (2 * WINDOW_SIGMA**2))
    offsets = torch.arange(-RADIUS, RADIUS + 1, device=like.device, dtype=like.dtype)
    total = torch.exp(-(offsets**2) / (2 * WINDOW_SIGMA**2)).sum()
    return torch.where(distance.abs() <= RADIUS, weights / total, torch.zeros_like(weights))
