"""Batch normalisation followed by ReLU in training mode, as few passes over memory as it needs (Triton, CUDA only).

    y = max(0, w (x - μ) / sqrt(v + eps) + b),  μ and v over all but the channels of the batch

Written as separate layers this reads and writes a feature map five times forwards and seven times backwards, in a dozen
kernels. Here the forward pass is one reduction and one map, the backward pass one reduction and one map.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _NormReLU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        running_mean: Tensor,
        running_var: Tensor,
        momentum: float,
        eps: float,
        relu: bool,
        shift: Tensor | None,
    ) -> Tensor:
        from splitveil.functional import residual_forward as kernels

        x = x.contiguous(memory_format=torch.channels_last)
        # zeros for the backward pass too: filling them takes as long as a small kernel
        sums, ctx.sums = torch.zeros(2, 2, x.shape[1], device=x.device)
        kernels.add_up(x, sums)
        running = (running_mean, running_var, momentum, eps)
        y, mean, inverse = kernels.normalise(x, sums, weight, bias, running, relu=relu, shift=shift)
        ctx.save_for_backward(x, weight, bias, mean, inverse)
        ctx.relu = relu
        return y

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        from splitveil.functional import residual_backward as kernels

        (slope,) = slopes
        slope = slope.contiguous(memory_format=torch.channels_last)
        x, *norm = ctx.saved_tensors
        sums, ctx.sums = ctx.sums, None
        if sums is None:  # a second backward pass through the same graph
            sums = torch.zeros(2, x.shape[1], device=x.device)
        kernels.slope_sums(slope, x, norm, sums, relu=ctx.relu)
        of_x = kernels.slope_of_input(x, slope=slope, norm=norm, sums=sums, relu=ctx.relu)
        own = len(norm[0])
        return of_x, sums[0, :own], sums[1, :own], None, None, None, None, None, None


def norm_relu(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    *,
    momentum: float = 0.1,
    eps: float = 1e-5,
    relu: bool = True,
    shift: Tensor | None = None,
) -> Tensor:
    """relu(batch_norm(x)) with the batch's own statistics; updates the running ones in place, as torch does.

    Without `relu` it is the normalisation alone. `shift` [C] is a bias that was left out of x: the batch's own mean
    would subtract it again, so only the running mean takes it into account, and its gradient is zero.

    Shapes: x [B, C, h, w] float32 or bfloat16, everything else [C] float32 -> like x, channels last. Sums are float32.
    Where the parameters have fewer than C entries, the last channels of x are padding and become zero.
    """
    return _NormReLU.apply(x, weight, bias, running_mean, running_var, momentum, eps, relu, shift)
