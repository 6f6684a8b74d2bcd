"""Forward kernels of `norm_relu` and of `tower`: normalise and rectify, and join with a shortcut.

Channels beyond those that a normalisation has parameters for (`own` of them) count as ones with weight and bias zero.

A reduction is one kernel: each program adds the sums of its slab of rows to two numbers per channel, and whoever needs
a mean divides for itself. The order in which programs add is left open, so that last bits may differ from run to run.
"""

# mypy: ignore-errors
# (a kernel's arguments are pointers and compile-time numbers, which Python's types cannot say; Triton has no stubs)
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor, empty, empty_like, float32

from splitveil.functional.residual_tiles import Layout, rectified, tile


@triton.jit
def _sum_kernel(x, sums, rows, slab, channels: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr, WIDE: tl.constexpr):
    """Σ (x - x₀) and Σ (x - x₀)²; the first row x₀ as origin avoids cancellation."""
    column = tl.program_id(1) * BC + tl.arange(0, BC)
    valid = column < channels
    origin = tl.load(x + column, mask=valid, other=0.0).to(tl.float32)
    first = tl.zeros([BR, BC], tl.float32)
    second = tl.zeros([BR, BC], tl.float32)
    for start in range(0, slab, BR):
        place, inside = tile(start, slab, rows, channels, BR, BC, WIDE)
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
        place, inside = tile(start, slab, rows, channels, BR, BC, WIDE)
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        answer = (value - centre[None, :]) * scale[None, :] * w[None, :] + b[None, :]
        if RELU:
            answer = rectified(answer)
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
    origin = rectified(origin).to(y.dtype.element_ty).to(tl.float32)
    first = tl.zeros([BR, BC], tl.float32)
    second = tl.zeros([BR, BC], tl.float32)
    for start in range(0, slab, BR):
        place, inside = tile(start, slab, rows, channels, BR, BC, WIDE)
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        value += b[None, :] + tl.load(skip + place, mask=inside, other=0.0).to(tl.float32)
        answer = rectified(value).to(y.dtype.element_ty)
        tl.store(y + place, answer, mask=inside)
        if STATISTICS:
            away = tl.where(inside, answer.to(tl.float32) - origin[None, :], 0.0)
            first += away
            second += away * away
    if STATISTICS:
        tl.atomic_add(sums + column, tl.sum(first, 0), mask=valid)
        tl.atomic_add(sums + channels + column, tl.sum(second, 0), mask=valid)


def add_up(x: Tensor, sums: Tensor) -> None:
    """Into `sums` [2, C], zero before: what `normalise` needs to know of a channels-last batch."""
    layout = Layout(x, summing=True)
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
    layout = Layout(x)
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
    layout = Layout(x, summing=sums is not None)
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
