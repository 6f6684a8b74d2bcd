"""Backward kernels of `norm_relu` and of `tower`: the gradients of what `residual_forward` computes.

Sums over rows are reductions of the same kind as there.
"""

# mypy: ignore-errors
# (a kernel's arguments are pointers and compile-time numbers, which Python's types cannot say; Triton has no stubs)
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor, empty_like

from splitveil.functional.residual_tiles import Layout, tile


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
        place, inside = tile(start, slab, rows, channels, BR, BC, WIDE)
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
        place, inside = tile(start, slab, rows, channels, BR, BC, WIDE)
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
    layout = Layout(x, summing=True)
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
    layout = Layout(x)
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
