"""The kernels of `tower` beside those of `norm_relu`: what happens where a block ends and its shortcut joins.

This file needs Triton, which comes with torch on CUDA; nothing else imports it before there is work for it.
"""

# mypy: ignore-errors
# (a kernel's arguments are pointers and compile-time numbers, which Python's types cannot say; Triton has no stubs)
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor, empty, empty_like, float32

from splitveil.functional.norm_relu_kernels import Layout, add_up, finish_statistics, last_of_all


@triton.jit
def _join_kernel(
    x,
    skip,
    bias,
    y,
    partial,
    counter,
    mean,
    inverse,
    running_mean,
    running_var,
    rows,
    slab,
    momentum,
    eps,
    channels: tl.constexpr,
    STATISTICS: tl.constexpr,
    BR: tl.constexpr,
    BP: tl.constexpr,
    BC: tl.constexpr,
):
    """y = max(0, x + b + skip), and the statistics of y for the normalisation that follows."""
    program = tl.program_id(0)
    column = tl.program_id(1) * BC + tl.arange(0, BC)
    valid = column < channels
    b = tl.load(bias + column, mask=valid, other=0.0).to(tl.float32)
    start_x = tl.load(x + column, mask=valid, other=0.0).to(tl.float32)
    start_skip = tl.load(skip + column, mask=valid, other=0.0).to(tl.float32)
    origin = tl.maximum(start_x + b + start_skip, 0.0)
    first = tl.zeros([BR, BC], tl.float32)
    second = tl.zeros([BR, BC], tl.float32)
    for start in range(0, slab, BR):
        row = program * slab + start + tl.arange(0, BR)
        inside = (row < rows)[:, None] & valid[None, :]
        place = row[:, None] * channels + column[None, :]
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        value += b[None, :] + tl.load(skip + place, mask=inside, other=0.0).to(tl.float32)
        answer = tl.maximum(value, 0.0).to(y.dtype.element_ty)
        tl.store(y + place, answer, mask=inside)
        if STATISTICS:
            away = tl.where(inside, answer.to(tl.float32) - origin[None, :], 0.0)
            first += away
            second += away * away
    if STATISTICS:
        finish_statistics(
            origin, first, second, partial, counter, mean, inverse, running_mean, running_var, mean, rows, momentum,
            eps, column, valid, channels, False, BP, BC,
        )  # fmt: skip


@triton.jit
def _part_kernel(
    slope,
    skip,
    x,
    weight,
    bias,
    mean,
    inverse,
    of_weight,
    of_bias,
    of_x,
    of_join,
    partial,
    counter,
    rows,
    slab,
    channels: tl.constexpr,
    NORM: tl.constexpr,
    JOIN: tl.constexpr,
    BR: tl.constexpr,
    BP: tl.constexpr,
    BC: tl.constexpr,
):
    """∂/∂x = skip + (slope through the normalisation of x), where the ReLU that made x let through; its sum is ∂/∂b."""
    program = tl.program_id(0)
    column = tl.program_id(1) * BC + tl.arange(0, BC)
    valid = column < channels
    if NORM:
        centre = tl.load(mean + column, mask=valid, other=0.0)
        scale = tl.load(inverse + column, mask=valid, other=0.0)
        w = tl.load(weight + column, mask=valid, other=0.0)
        b = tl.load(bias + column, mask=valid, other=0.0)
        mean_slope = tl.load(of_bias + column, mask=valid, other=0.0) / rows
        mean_product = tl.load(of_weight + column, mask=valid, other=0.0) / rows
    total = tl.zeros([BR, BC], tl.float32)
    for start in range(0, slab, BR):
        row = program * slab + start + tl.arange(0, BR)
        inside = (row < rows)[:, None] & valid[None, :]
        place = row[:, None] * channels + column[None, :]
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        answer = tl.load(skip + place, mask=inside, other=0.0).to(tl.float32)
        if NORM:
            normal = (value - centre[None, :]) * scale[None, :]
            g = tl.load(slope + place, mask=inside, other=0.0).to(tl.float32)
            g = tl.where(normal * w[None, :] + b[None, :] > 0, g, 0.0)
            answer += (w * scale)[None, :] * (g - mean_slope[None, :] - normal * mean_product[None, :])
        if JOIN:
            answer = tl.where(inside & (value > 0), answer, 0.0)
            total += answer
        tl.store(of_x + place, answer.to(of_x.dtype.element_ty), mask=inside)
    if JOIN:
        tl.store(partial + program * 2 * channels + column, tl.sum(total, 0), mask=valid)
        tl.store(partial + program * 2 * channels + channels + column, tl.zeros([BC], tl.float32), mask=valid)
        if last_of_all(counter):
            everything, _ = add_up(partial, column, valid, channels, BP, BC)
            tl.store(of_join + column, everything, mask=valid)


def join(
    x: Tensor, skip: Tensor, bias: Tensor, following: tuple[Tensor, Tensor, float, float] | None, counter: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """y = max(0, x + bias + skip), and μ and 1/sqrt(v + eps) of y.

    `following` is the normalisation that takes y: running mean and variance (updated), momentum, eps. Without one the
    statistics are not computed.
    """
    layout = Layout(x)
    y = empty_like(x)
    mean, inverse = empty(2, layout.channels, dtype=float32, device=x.device)
    running_mean, running_var, momentum, eps = following or (mean, mean, 0.0, 0.0)
    _join_kernel[layout.grid](
        x,
        skip,
        bias,
        y,
        layout.partial_sums(x),
        counter,
        mean,
        inverse,
        running_mean,
        running_var,
        layout.rows,
        layout.slab,
        momentum,
        eps,
        layout.channels,
        STATISTICS=following is not None,
        **layout.tile,
    )
    return y, mean, inverse


def part(
    slope: Tensor | None,
    skip: Tensor,
    x: Tensor,
    norm: tuple[Tensor, ...] | None,
    counter: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The gradient of x, which a shortcut (`skip`) and a normalisation with ReLU (`slope`) have taken up.

    `norm`: weight, bias, mean, inverse and the gradients of weight and bias; None where there is only the shortcut.
    With `counter`, x came from `join`: the gradient is that of its sum, and the second answer is that of its bias.
    """
    layout = Layout(x)
    of_x = empty_like(x)
    of_join = empty(layout.channels, dtype=float32, device=x.device)
    _part_kernel[layout.grid](
        skip if slope is None else slope,
        skip,
        x,
        *(norm or [of_join] * 6),
        of_x,
        of_join,
        layout.partial_sums(x),
        of_join if counter is None else counter,
        layout.rows,
        layout.slab,
        layout.channels,
        NORM=norm is not None,
        JOIN=counter is not None,
        **layout.tile,
    )
    return of_x, of_join
