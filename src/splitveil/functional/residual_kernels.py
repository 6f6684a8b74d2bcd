"""The kernels of `norm_relu` and of `tower`. A picture in channels-last memory is a table [R, C] with R = B·h·w rows.

Channels beyond those that a normalisation has parameters for (`own` of them) count as ones with weight and bias zero.

A reduction is one kernel: each program adds the sums of its slab of rows to two numbers per channel, and whoever needs
a mean divides for itself. The order in which programs add is left open, so that last bits may differ from run to run.

This file needs Triton, which comes with torch on CUDA; nothing else imports it before there is work for it.
"""

# mypy: ignore-errors
# (a kernel's arguments are pointers and compile-time numbers, which Python's types cannot say; Triton has no stubs)
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor, empty, empty_like, float32

PROGRAMS, TILE = 528, 2048  # four programs for each multiprocessor of a large GPU
SUMMING_PROGRAMS, SUMMING_TILE = 264, 8192  # where all add to the same few numbers they queue: fewer, with more to do
LARGE = 2**31  # numbers in a batch from which on their places need 64 bits


@triton.jit
def _tile(start, slab, rows, channels: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr, WIDE: tl.constexpr):
    """Where the tile of BR rows from `start` in this program's slab lies, and which of its numbers exist."""
    column = tl.program_id(1) * BC + tl.arange(0, BC)
    first = tl.program_id(0)
    if WIDE:  # 32 bits cannot count the numbers of so large a batch
        first = first.to(tl.int64)
    row = first * slab + start + tl.arange(0, BR)
    return row[:, None] * channels + column[None, :], (row < rows)[:, None] & (column < channels)[None, :]


@triton.jit
def _rectified(x):
    """max(0, x), where NaN stays NaN as in torch: a network that broke must not look sound."""
    return tl.where(x < 0, 0.0, x)


@triton.jit
def _sum_kernel(x, sums, rows, slab, channels: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr, WIDE: tl.constexpr):
    """Σ (x - x₀) and Σ (x - x₀)²; the first row x₀ as origin avoids cancellation."""
    column = tl.program_id(1) * BC + tl.arange(0, BC)
    valid = column < channels
    origin = tl.load(x + column, mask=valid, other=0.0).to(tl.float32)
    first = tl.zeros([BR, BC], tl.float32)
    second = tl.zeros([BR, BC], tl.float32)
    for start in range(0, slab, BR):
        place, inside = _tile(start, slab, rows, channels, BR, BC, WIDE)
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        away = tl.where(inside, value - origin[None, :], 0.0)
        first += away
        second += away * away
    tl.atomic_add(sums + column, tl.sum(first, 0), mask=valid)
    tl.atomic_add(sums + channels + column, tl.sum(second, 0), mask=valid)


@triton.jit
def _apply_kernel(
    x,
    y,
    weight,
    bias,
    sums,
    mean,
    inverse,
    running_mean,
    running_var,
    shift,
    rows,
    slab,
    momentum,
    eps,
    channels: tl.constexpr,
    own: tl.constexpr,
    RELU: tl.constexpr,
    SHIFT: tl.constexpr,
    BR: tl.constexpr,
    BC: tl.constexpr,
    WIDE: tl.constexpr,
):
    """y = max(0, w (x - μ)/s + b), without the maximum where there is no ReLU; μ and 1/s are kept, and the running
    statistics (of x + shift, with the unbiased variance) move on.
    """
    column = tl.program_id(1) * BC + tl.arange(0, BC)
    valid = column < channels
    known = column < own
    away = tl.load(sums + column, mask=valid, other=0.0) / rows
    square = tl.load(sums + channels + column, mask=valid, other=0.0) / rows
    variance = tl.maximum(square - away * away, 0.0)  # rounding could make it negative
    centre = tl.load(x + column, mask=valid, other=0.0).to(tl.float32) + away
    scale = 1.0 / tl.sqrt(variance + eps)
    if tl.program_id(0) == 0:
        tl.store(mean + column, centre, mask=valid)
        tl.store(inverse + column, scale, mask=valid)
        seen = centre
        if SHIFT:
            seen += tl.load(shift + column, mask=known, other=0.0)
        unbiased = variance * rows / (rows - 1)
        old_mean = tl.load(running_mean + column, mask=known, other=0.0)
        old_var = tl.load(running_var + column, mask=known, other=0.0)
        tl.store(running_mean + column, old_mean + momentum * (seen - old_mean), mask=known)
        tl.store(running_var + column, old_var + momentum * (unbiased - old_var), mask=known)
    w = tl.load(weight + column, mask=known, other=0.0)
    b = tl.load(bias + column, mask=known, other=0.0)
    for start in range(0, slab, BR):
        place, inside = _tile(start, slab, rows, channels, BR, BC, WIDE)
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        answer = (value - centre[None, :]) * scale[None, :] * w[None, :] + b[None, :]
        if RELU:
            answer = _rectified(answer)
        tl.store(y + place, answer.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _join_kernel(
    x,
    skip,
    bias,
    y,
    sums,
    rows,
    slab,
    channels: tl.constexpr,
    STATISTICS: tl.constexpr,
    BR: tl.constexpr,
    BC: tl.constexpr,
    WIDE: tl.constexpr,
):
    """y = max(0, x + b + skip), and what `_sum_kernel` would find in y."""
    column = tl.program_id(1) * BC + tl.arange(0, BC)
    valid = column < channels
    b = tl.load(bias + column, mask=valid, other=0.0)
    origin = tl.load(x + column, mask=valid, other=0.0).to(tl.float32)
    origin += b + tl.load(skip + column, mask=valid, other=0.0).to(tl.float32)
    origin = _rectified(origin).to(y.dtype.element_ty).to(tl.float32)
    first = tl.zeros([BR, BC], tl.float32)
    second = tl.zeros([BR, BC], tl.float32)
    for start in range(0, slab, BR):
        place, inside = _tile(start, slab, rows, channels, BR, BC, WIDE)
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        value += b[None, :] + tl.load(skip + place, mask=inside, other=0.0).to(tl.float32)
        answer = _rectified(value).to(y.dtype.element_ty)
        tl.store(y + place, answer, mask=inside)
        if STATISTICS:
            away = tl.where(inside, answer.to(tl.float32) - origin[None, :], 0.0)
            first += away
            second += away * away
    if STATISTICS:
        tl.atomic_add(sums + column, tl.sum(first, 0), mask=valid)
        tl.atomic_add(sums + channels + column, tl.sum(second, 0), mask=valid)


@triton.jit
def _slope_sum_kernel(
    slope,
    x,
    weight,
    bias,
    mean,
    inverse,
    sums,
    rows,
    slab,
    channels: tl.constexpr,
    own: tl.constexpr,
    RELU: tl.constexpr,
    BR: tl.constexpr,
    BC: tl.constexpr,
    WIDE: tl.constexpr,
):
    """∂/∂w = Σ g·(x - μ)/s,  ∂/∂b = Σ g,  g the slope where the ReLU let through."""
    column = tl.program_id(1) * BC + tl.arange(0, BC)
    valid = column < channels
    known = column < own
    centre = tl.load(mean + column, mask=valid, other=0.0)
    scale = tl.load(inverse + column, mask=valid, other=0.0)
    w = tl.load(weight + column, mask=known, other=0.0)
    b = tl.load(bias + column, mask=known, other=0.0)
    first = tl.zeros([BR, BC], tl.float32)
    second = tl.zeros([BR, BC], tl.float32)
    for start in range(0, slab, BR):
        place, inside = _tile(start, slab, rows, channels, BR, BC, WIDE)
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(slope + place, mask=inside, other=0.0).to(tl.float32)
        normal = (value - centre[None, :]) * scale[None, :]
        if RELU:
            g = tl.where(normal * w[None, :] + b[None, :] > 0, g, 0.0)
        first += g * normal
        second += g
    tl.atomic_add(sums + column, tl.sum(first, 0), mask=valid)
    tl.atomic_add(sums + channels + column, tl.sum(second, 0), mask=valid)


@triton.jit
def _slope_kernel(
    slope,
    skip,
    x,
    weight,
    bias,
    mean,
    inverse,
    sums,
    of_x,
    of_join,
    rows,
    slab,
    channels: tl.constexpr,
    own: tl.constexpr,
    NORM: tl.constexpr,
    RELU: tl.constexpr,
    SKIP: tl.constexpr,
    JOIN: tl.constexpr,
    BR: tl.constexpr,
    BC: tl.constexpr,
    WIDE: tl.constexpr,
):
    """∂/∂x = skip + w/s · (g - mean g - (x - μ)/s · mean(g·(x - μ)/s)): what a shortcut and a normalisation took of x.

    With JOIN, x came from `_join_kernel`: the slope stops where its ReLU did, and its sum is the slope of the bias.
    """
    column = tl.program_id(1) * BC + tl.arange(0, BC)
    valid = column < channels
    known = column < own
    if NORM:
        centre = tl.load(mean + column, mask=valid, other=0.0)
        scale = tl.load(inverse + column, mask=valid, other=0.0)
        w = tl.load(weight + column, mask=known, other=0.0)
        b = tl.load(bias + column, mask=known, other=0.0)
        mean_product = tl.load(sums + column, mask=valid, other=0.0) / rows
        mean_slope = tl.load(sums + channels + column, mask=valid, other=0.0) / rows
    total = tl.zeros([BR, BC], tl.float32)
    for start in range(0, slab, BR):
        place, inside = _tile(start, slab, rows, channels, BR, BC, WIDE)
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        answer = tl.zeros([BR, BC], tl.float32)
        if SKIP:
            answer += tl.load(skip + place, mask=inside, other=0.0).to(tl.float32)
        if NORM:
            normal = (value - centre[None, :]) * scale[None, :]
            g = tl.load(slope + place, mask=inside, other=0.0).to(tl.float32)
            if RELU:
                g = tl.where(normal * w[None, :] + b[None, :] > 0, g, 0.0)
            answer += (w * scale)[None, :] * (g - mean_slope[None, :] - normal * mean_product[None, :])
        if JOIN:
            answer = tl.where(inside & (value > 0), answer, 0.0)
            total += answer
        tl.store(of_x + place, answer.to(of_x.dtype.element_ty), mask=inside)
    if JOIN:
        tl.atomic_add(of_join + column, tl.sum(total, 0), mask=valid)


class _Layout:
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


def add_up(x: Tensor, sums: Tensor) -> None:
    """Into `sums` [2, C], zero before: what `normalise` needs to know of a channels-last batch."""
    layout = _Layout(x, summing=True)
    _sum_kernel[layout.grid](x, sums, layout.rows, layout.slab, layout.channels, **layout.tile, num_warps=8)


def normalise(
    x: Tensor,
    sums: Tensor,
    weight: Tensor,
    bias: Tensor,
    running: tuple[Tensor, Tensor, float, float],
    *,
    relu: bool = True,
    shift: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The normalised batch (rectified with `relu`), and μ and 1/sqrt(v + eps) [C].

    `running`: running mean and variance, updated in place, momentum and eps.
    """
    layout = _Layout(x)
    y = empty_like(x)
    mean, inverse = empty(2, layout.channels, dtype=float32, device=x.device)
    running_mean, running_var, momentum, eps = running
    _apply_kernel[layout.grid](
        x,
        y,
        weight,
        bias,
        sums,
        mean,
        inverse,
        running_mean,
        running_var,
        mean if shift is None else shift,
        layout.rows,
        layout.slab,
        momentum,
        eps,
        layout.channels,
        len(weight),
        RELU=relu,
        SHIFT=shift is not None,
        **layout.tile,
    )
    return y, mean, inverse


def join(x: Tensor, skip: Tensor, bias: Tensor, sums: Tensor | None) -> Tensor:
    """max(0, x + bias + skip); with `sums` [2, C], zero before, what `add_up` would find in it."""
    layout = _Layout(x, summing=sums is not None)
    y = empty_like(x)
    _join_kernel[layout.grid](
        x,
        skip,
        bias,
        y,
        bias if sums is None else sums,
        layout.rows,
        layout.slab,
        layout.channels,
        STATISTICS=sums is not None,
        **layout.tile,
    )
    return y


def slope_sums(
    slope: Tensor,
    x: Tensor,
    norm: tuple[Tensor, Tensor, Tensor, Tensor],
    sums: Tensor,
    *,
    relu: bool = True,
) -> None:
    """Into `sums` [2, C], zero before: the gradients of a normalisation's weight and bias.

    `norm`: weight, bias, mean and inverse as `normalise` found them.
    """
    layout = _Layout(x, summing=True)
    _slope_sum_kernel[layout.grid](
        slope,
        x,
        *norm,
        sums,
        layout.rows,
        layout.slab,
        layout.channels,
        len(norm[0]),
        RELU=relu,
        **layout.tile,
        num_warps=8,
    )


def slope_of_input(
    x: Tensor,
    *,
    slope: Tensor | None = None,
    norm: tuple[Tensor, Tensor, Tensor, Tensor] | None = None,
    sums: Tensor | None = None,
    relu: bool = True,
    skip: Tensor | None = None,
    of_join: Tensor | None = None,
) -> Tensor:
    """The gradient of x, which a normalisation (`slope`, `norm`, `sums`) and a shortcut (`skip`) may have taken up.

    With `of_join` [C], zero before, x came from `join`: the gradient is that of its sum, and of_join that of its bias.
    """
    layout = _Layout(x)
    of_x = empty_like(x)
    _slope_kernel[layout.grid](
        of_x if slope is None else slope,
        of_x if skip is None else skip,
        x,
        *([of_x] * 4 if norm is None else norm),
        of_x if sums is None else sums,
        of_x,
        of_x if of_join is None else of_join,
        layout.rows,
        layout.slab,
        layout.channels,
        layout.channels if norm is None else len(norm[0]),
        NORM=norm is not None,
        RELU=relu,
        SKIP=skip is not None,
        JOIN=of_join is not None,
        **layout.tile,
    )
    return of_x
