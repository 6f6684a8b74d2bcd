"""The kernels of `norm_relu`. A picture in channels-last memory is a table [R, C] with R = B·h·w rows.

This file needs Triton, which comes with torch on CUDA; nothing else imports it before there is work for it.
"""

# mypy: ignore-errors
# (a kernel's arguments are pointers and compile-time numbers, which Python's types cannot say; Triton has no stubs)
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor, empty, empty_like, float32

TILE = 4096  # numbers that one program holds at a time
PROGRAMS = 264  # about two for each multiprocessor of a large GPU
SPAN = 1024  # numbers that a program of a map takes


@triton.jit
def _sum_kernel(x, partial, rows, slab: tl.constexpr, channels: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    """partial[p] = Σ (x - x₀) and Σ (x - x₀)² over a slab; the first row x₀ as origin avoids cancellation."""
    program = tl.program_id(0)
    column = tl.program_id(1) * BC + tl.arange(0, BC)
    valid = column < channels
    origin = tl.load(x + column, mask=valid, other=0.0).to(tl.float32)
    first = tl.zeros([BR, BC], tl.float32)
    second = tl.zeros([BR, BC], tl.float32)
    for start in range(0, slab, BR):
        row = program * slab + start + tl.arange(0, BR)
        inside = (row < rows)[:, None] & valid[None, :]
        value = tl.load(x + row[:, None] * channels + column[None, :], mask=inside, other=0.0).to(tl.float32)
        away = tl.where(inside, value - origin[None, :], 0.0)
        first += away
        second += away * away
    place = partial + program * 2 * channels + column
    tl.store(place, tl.sum(first, 0), mask=valid)
    tl.store(place + channels, tl.sum(second, 0), mask=valid)


@triton.jit
def _finish_sum_kernel(
    x,
    partial,
    mean,
    inverse,
    running_mean,
    running_var,
    rows,
    programs: tl.constexpr,
    momentum,
    eps,
    channels: tl.constexpr,
    BP: tl.constexpr,
    BC: tl.constexpr,
):
    """μ, 1/sqrt(v + eps) from the partial sums; running statistics with the unbiased variance."""
    column = tl.program_id(0) * BC + tl.arange(0, BC)
    valid = column < channels
    first = tl.zeros([BP, BC], tl.float32)
    second = tl.zeros([BP, BC], tl.float32)
    for start in range(0, programs, BP):
        program = start + tl.arange(0, BP)
        inside = (program < programs)[:, None] & valid[None, :]
        place = partial + program[:, None] * 2 * channels + column[None, :]
        first += tl.load(place, mask=inside, other=0.0)
        second += tl.load(place + channels, mask=inside, other=0.0)
    shift = tl.sum(first, 0) / rows
    variance = tl.maximum(tl.sum(second, 0) / rows - shift * shift, 0.0)  # rounding could make it negative
    centre = tl.load(x + column, mask=valid, other=0.0).to(tl.float32) + shift
    tl.store(mean + column, centre, mask=valid)
    tl.store(inverse + column, 1.0 / tl.sqrt(variance + eps), mask=valid)
    unbiased = variance * rows / (rows - 1)
    old_mean = tl.load(running_mean + column, mask=valid, other=0.0)
    old_var = tl.load(running_var + column, mask=valid, other=0.0)
    tl.store(running_mean + column, old_mean + momentum * (centre - old_mean), mask=valid)
    tl.store(running_var + column, old_var + momentum * (unbiased - old_var), mask=valid)


@triton.jit
def _apply_kernel(
    x, y, weight, bias, mean, inverse, total, channels: tl.constexpr, RELU: tl.constexpr, BLOCK: tl.constexpr
):
    """y = max(0, w (x - μ)/s + b), without the maximum where there is no ReLU."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    column = place % channels
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    normal = (value - tl.load(mean + column)) * tl.load(inverse + column)
    answer = normal * tl.load(weight + column) + tl.load(bias + column)
    if RELU:
        answer = tl.maximum(answer, 0.0)
    tl.store(y + place, answer.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _slope_sum_kernel(
    slope,
    x,
    weight,
    bias,
    mean,
    inverse,
    partial,
    rows,
    slab: tl.constexpr,
    channels: tl.constexpr,
    RELU: tl.constexpr,
    BR: tl.constexpr,
    BC: tl.constexpr,
):
    """partial[p] = Σ g and Σ g·(x - μ)/s over a slab, g the slope where the ReLU let through."""
    program = tl.program_id(0)
    column = tl.program_id(1) * BC + tl.arange(0, BC)
    valid = column < channels
    centre = tl.load(mean + column, mask=valid, other=0.0)
    scale = tl.load(inverse + column, mask=valid, other=0.0)
    w = tl.load(weight + column, mask=valid, other=0.0)
    b = tl.load(bias + column, mask=valid, other=0.0)
    first = tl.zeros([BR, BC], tl.float32)
    second = tl.zeros([BR, BC], tl.float32)
    for start in range(0, slab, BR):
        row = program * slab + start + tl.arange(0, BR)
        inside = (row < rows)[:, None] & valid[None, :]
        place = row[:, None] * channels + column[None, :]
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(slope + place, mask=inside, other=0.0).to(tl.float32)
        normal = (value - centre[None, :]) * scale[None, :]
        if RELU:
            g = tl.where(normal * w[None, :] + b[None, :] > 0, g, 0.0)
        first += g
        second += g * normal
    place_out = partial + program * 2 * channels + column
    tl.store(place_out, tl.sum(first, 0), mask=valid)
    tl.store(place_out + channels, tl.sum(second, 0), mask=valid)


@triton.jit
def _finish_slope_kernel(
    partial, of_weight, of_bias, programs: tl.constexpr, channels: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr
):
    """∂/∂b = Σ g,  ∂/∂w = Σ g·(x - μ)/s."""
    column = tl.program_id(0) * BC + tl.arange(0, BC)
    valid = column < channels
    first = tl.zeros([BP, BC], tl.float32)
    second = tl.zeros([BP, BC], tl.float32)
    for start in range(0, programs, BP):
        program = start + tl.arange(0, BP)
        inside = (program < programs)[:, None] & valid[None, :]
        place = partial + program[:, None] * 2 * channels + column[None, :]
        first += tl.load(place, mask=inside, other=0.0)
        second += tl.load(place + channels, mask=inside, other=0.0)
    tl.store(of_bias + column, tl.sum(first, 0), mask=valid)
    tl.store(of_weight + column, tl.sum(second, 0), mask=valid)


@triton.jit
def _slope_kernel(
    slope,
    x,
    weight,
    bias,
    mean,
    inverse,
    of_weight,
    of_bias,
    of_x,
    rows,
    total,
    channels: tl.constexpr,
    RELU: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """∂/∂x = w/s · (g - mean g - (x - μ)/s · mean(g·(x - μ)/s))."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    column = place % channels
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(slope + place, mask=inside, other=0.0).to(tl.float32)
    scale = tl.load(inverse + column)
    w = tl.load(weight + column)
    normal = (value - tl.load(mean + column)) * scale
    if RELU:
        g = tl.where(normal * w + tl.load(bias + column) > 0, g, 0.0)
    away = g - tl.load(of_bias + column) / rows - normal * (tl.load(of_weight + column) / rows)
    tl.store(of_x + place, (w * scale * away).to(of_x.dtype.element_ty), mask=inside)


def _layout(x: Tensor) -> tuple[int, int, int, int, int, int]:
    """Rows, channels, tile height and width, rows per program, programs."""
    channels = x.shape[1]
    rows = x.numel() // channels
    width = min(64, triton.next_power_of_2(channels))
    height = TILE // width
    slab = height * triton.cdiv(rows, height * PROGRAMS)
    return rows, channels, height, width, slab, triton.cdiv(rows, slab)


def statistics(
    x: Tensor, running_mean: Tensor, running_var: Tensor, momentum: float, eps: float
) -> tuple[Tensor, Tensor]:
    """μ and 1/sqrt(v + eps) [C] of a channels-last batch; the running statistics are updated in place."""
    rows, channels, height, width, slab, programs = _layout(x)
    partial = empty(programs, 2, channels, dtype=float32, device=x.device)
    mean, inverse = empty(2, channels, dtype=float32, device=x.device)
    _sum_kernel[programs, triton.cdiv(channels, width)](
        x, partial, rows, slab, channels, BR=height, BC=width, num_warps=8
    )
    _finish_sum_kernel[(triton.cdiv(channels, 16),)](
        x, partial, mean, inverse, running_mean, running_var, rows, programs, momentum, eps, channels, BP=64, BC=16
    )
    return mean, inverse


def apply(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, inverse: Tensor, relu: bool) -> Tensor:
    """The normalised batch, rectified with `relu`."""
    y, total = empty_like(x), x.numel()
    grid = (triton.cdiv(total, SPAN),)
    _apply_kernel[grid](x, y, weight, bias, mean, inverse, total, x.shape[1], RELU=relu, BLOCK=SPAN)
    return y


def backward(
    slope: Tensor, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, inverse: Tensor, relu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, weight and bias, given that of the answer."""
    rows, channels, height, width, slab, programs = _layout(x)
    partial = empty(programs, 2, channels, dtype=float32, device=x.device)
    of_weight, of_bias = empty(2, channels, dtype=float32, device=x.device)
    _slope_sum_kernel[programs, triton.cdiv(channels, width)](
        slope,
        x,
        weight,
        bias,
        mean,
        inverse,
        partial,
        rows,
        slab,
        channels,
        RELU=relu,
        BR=height,
        BC=width,
        num_warps=8,
    )
    _finish_slope_kernel[(triton.cdiv(channels, 16),)](partial, of_weight, of_bias, programs, channels, BP=64, BC=16)
    of_x, total = empty_like(x), x.numel()
    _slope_kernel[(triton.cdiv(total, SPAN),)](
        slope, x, weight, bias, mean, inverse, of_weight, of_bias, of_x, rows, total, channels, RELU=relu, BLOCK=SPAN
    )
    return of_x, of_weight, of_bias
