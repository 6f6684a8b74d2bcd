"""How the kernels of `norm_relu` and of `tower` share out a batch: slabs of rows, tile by tile.

A picture in channels-last memory is a table [R, C] with R = B·h·w rows. This file and the two with the kernels need
Triton, which comes with torch on CUDA; nothing else imports them before there is work for them.
"""

# mypy: ignore-errors
# (a kernel's arguments are pointers and compile-time numbers, which Python's types cannot say; Triton has no stubs)
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

PROGRAMS, TILE = 528, 2048  # four programs for each multiprocessor of a large GPU
SUMMING_PROGRAMS, SUMMING_TILE = 264, 8192  # where all add to the same few numbers they queue: fewer, with more to do
LARGE = 2**31  # numbers in a batch from which on their places need 64 bits


@triton.jit
def tile(start, slab, rows, channels: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr, WIDE: tl.constexpr):
    """Where the tile of BR rows from `start` in this program's slab lies, and which of its numbers exist."""
    column = tl.program_id(1) * BC + tl.arange(0, BC)
    first = tl.program_id(0)
    if WIDE:  # 32 bits cannot count the numbers of so large a batch
        first = first.to(tl.int64)
    row = first * slab + start + tl.arange(0, BR)
    return row[:, None] * channels + column[None, :], (row < rows)[:, None] & (column < channels)[None, :]


@triton.jit
def rectified(x):
    """max(0, x), where NaN stays NaN as in torch: a network that broke must not look sound."""
    return tl.where(x < 0, 0.0, x)


class Layout:
    """How a channels-last batch is shared out: a grid of programs with `slab` rows each, tiles of BR x BC numbers."""

    def __init__(self, x: Tensor, *, summing: bool = False) -> None:
        programs, tile = (SUMMING_PROGRAMS, SUMMING_TILE) if summing else (PROGRAMS, TILE)
        self.channels = x.shape[1]
        self.rows = x.numel() // self.channels
        width = min(64, triton.next_power_of_2(self.channels))
        height = tile // width
        self.slab = height * triton.cdiv(self.rows, height * programs)
        self.grid = (triton.cdiv(self.rows, self.slab), triton.cdiv(self.channels, width))
        wide = self.grid[0] * self.slab * self.channels >= LARGE  # the last slab may reach beyond the last row
        self.tile = {"BR": height, "BC": width, "WIDE": wide}
