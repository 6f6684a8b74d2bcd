"""The kernels of `norm_relu`. A picture in channels-last memory is a table [R, C] with R = B·h·w rows.

A reduction is one kernel: each program stores the sums of its slab of rows, and whichever program ends last adds these
up in a fixed order, so that the same input gives the same bits.

This file needs Triton, which comes with torch on CUDA; nothing else imports it before there is work for it.
"""

# mypy: ignore-errors
# (a kernel's arguments are pointers and compile-time numbers, which Python's types cannot say; Triton has no stubs)
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor, empty, empty_like, float32, int32, zeros

TILE = 4096  # numbers that one program holds at a time
PROGRAMS = 512  # about four for each multiprocessor of a large GPU
SPAN = 1024  # numbers that a program of a map takes


@triton.jit
def last_of_all(counter):
    """Whether all other programs of this column have been here; what they stored before is then visible."""
    tl.debug_barrier()
    return tl.atomic_add(counter + tl.program_id(1), 1, sem="acq_rel") == tl.num_programs(0) - 1


@triton.jit
def add_up(partial, column, valid, channels: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr):
    """The two sums of each channel over all programs. The loads go past the multiprocessor's own cache."""
    first = tl.zeros([BP, BC], tl.float32)
    second = tl.zeros([BP, BC], tl.float32)
    for start in range(0, tl.num_programs(0), BP):
        program = start + tl.arange(0, BP)
        inside = (program < tl.num_programs(0))[:, None] & valid[None, :]
        place = partial + program[:, None] * 2 * channels + column[None, :]
        first += tl.load(place, mask=inside, other=0.0, cache_modifier=".cg")
        second += tl.load(place + channels, mask=inside, other=0.0, cache_modifier=".cg")
    return tl.sum(first, 0), tl.sum(second, 0)


@triton.jit
def finish_statistics(
    origin,
    first,
    second,
    partial,
    counter,
    mean,
    inverse,
    running_mean,
    running_var,
    shift,
    rows,
    momentum,
    eps,
    column,
    valid,
    channels: tl.constexpr,
    SHIFT: tl.constexpr,
    BP: tl.constexpr,
    BC: tl.constexpr,
):
    """μ and 1/sqrt(v + eps) from Σ (x - x₀) and Σ (x - x₀)²; running statistics (of x + shift) with the unbiased v."""
    place = partial + tl.program_id(0) * 2 * channels + column
    tl.store(place, tl.sum(first, 0), mask=valid)
    tl.store(place + channels, tl.sum(second, 0), mask=valid)
    if last_of_all(counter):
        all_first, all_second = add_up(partial, column, valid, channels, BP, BC)
        away = all_first / rows
        variance = tl.maximum(all_second / rows - away * away, 0.0)  # rounding could make it negative
        centre = origin + away
        tl.store(mean + column, centre, mask=valid)
        tl.store(inverse + column, 1.0 / tl.sqrt(variance + eps), mask=valid)
        if SHIFT:
            centre += tl.load(shift + column, mask=valid, other=0.0)
        unbiased = variance * rows / (rows - 1)
        old_mean = tl.load(running_mean + column, mask=valid, other=0.0)
        old_var = tl.load(running_var + column, mask=valid, other=0.0)
        tl.store(running_mean + column, old_mean + momentum * (centre - old_mean), mask=valid)
        tl.store(running_var + column, old_var + momentum * (unbiased - old_var), mask=valid)


@triton.jit
def _sum_kernel(
    x,
    partial,
    counter,
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
    SHIFT: tl.constexpr,
    BR: tl.constexpr,
    BP: tl.constexpr,
    BC: tl.constexpr,
):
    """The batch's statistics; the first row x₀ as origin avoids cancellation."""
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
    finish_statistics(
        origin, first, second, partial, counter, mean, inverse, running_mean, running_var, shift, rows, momentum, eps,
        column, valid, channels, SHIFT, BP, BC,
    )  # fmt: skip


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
    counter,
    of_weight,
    of_bias,
    rows,
    slab,
    channels: tl.constexpr,
    RELU: tl.constexpr,
    BR: tl.constexpr,
    BP: tl.constexpr,
    BC: tl.constexpr,
):
    """∂/∂b = Σ g,  ∂/∂w = Σ g·(x - μ)/s,  g the slope where the ReLU let through."""
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
    if last_of_all(counter):
        all_first, all_second = add_up(partial, column, valid, channels, BP, BC)
        tl.store(of_bias + column, all_first, mask=valid)
        tl.store(of_weight + column, all_second, mask=valid)


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


class Layout:
    """How a channels-last batch is shared out: `grid` programs of `slab` rows, tiles of BR rows and BC channels."""

    def __init__(self, x: Tensor) -> None:
        self.channels = x.shape[1]
        self.rows = x.numel() // self.channels
        width = min(64, triton.next_power_of_2(self.channels))
        height = TILE // width
        # two tiles at least: a small batch is then added up by few programs, whose sums the last one reads in one go
        self.slab = height * max(2, triton.cdiv(self.rows, height * PROGRAMS))
        self.grid = (triton.cdiv(self.rows, self.slab), triton.cdiv(self.channels, width))
        self.tile = {"BR": height, "BP": 2 * height, "BC": width, "num_warps": 8}

    def partial_sums(self, x: Tensor) -> Tensor:
        return empty(self.grid[0], 2, self.channels, dtype=float32, device=x.device)


def counters(x: Tensor, layout: Layout, count: int = 1) -> Tensor:
    """For each of `count` reductions the number of programs that have ended [count, columns of tiles]."""
    return zeros(count, layout.grid[1], dtype=int32, device=x.device)


def statistics(
    x: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
    *,
    shift: Tensor | None = None,
    counter: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """μ and 1/sqrt(v + eps) [C] of a channels-last batch; running statistics, of x + shift, are updated in place."""
    layout = Layout(x)
    mean, inverse = empty(2, layout.channels, dtype=float32, device=x.device)
    _sum_kernel[layout.grid](
        x,
        layout.partial_sums(x),
        counters(x, layout) if counter is None else counter,
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
        SHIFT=shift is not None,
        **layout.tile,
    )
    return mean, inverse


def apply(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, inverse: Tensor, relu: bool) -> Tensor:
    """The normalised batch, rectified with `relu`."""
    y, total = empty_like(x), x.numel()
    grid = (triton.cdiv(total, SPAN),)
    _apply_kernel[grid](x, y, weight, bias, mean, inverse, total, x.shape[1], RELU=relu, BLOCK=SPAN)
    return y


def slope_sums(
    slope: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    inverse: Tensor,
    relu: bool,
    counter: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Gradients of weight and bias, given that of the answer."""
    layout = Layout(x)
    of_weight, of_bias = empty(2, layout.channels, dtype=float32, device=x.device)
    _slope_sum_kernel[layout.grid](
        slope,
        x,
        weight,
        bias,
        mean,
        inverse,
        layout.partial_sums(x),
        counters(x, layout) if counter is None else counter,
        of_weight,
        of_bias,
        layout.rows,
        layout.slab,
        layout.channels,
        RELU=relu,
        **layout.tile,
    )
    return of_weight, of_bias


def backward(
    slope: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    inverse: Tensor,
    relu: bool,
    counter: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, weight and bias, given that of the answer."""
    of_weight, of_bias = slope_sums(slope, x, weight, bias, mean, inverse, relu, counter)
    of_x, total, channels = empty_like(x), x.numel(), x.shape[1]
    _slope_kernel[(triton.cdiv(total, SPAN),)](
        slope,
        x,
        weight,
        bias,
        mean,
        inverse,
        of_weight,
        of_bias,
        of_x,
        total // channels,
        total,
        channels,
        RELU=relu,
        BLOCK=SPAN,
    )
    return of_x, of_weight, of_bias
