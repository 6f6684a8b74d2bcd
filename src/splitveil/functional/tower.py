"""A tower of equal pre-activation blocks, trained with few kernels (Triton, CUDA only).

    y = relu(x + conv2(relu(bn2(conv1(relu(bn1(x)))))))      once per block

On maps as small as a decoder's (8 x 8) a GPU spends its time between kernels, not in them. Layer by layer a training
step of the decoder N8C64 launches 697, with this 422: what is done element by element joins the reduction beside it,
weights change precision all at once, and a bias that a normalisation takes out again is never added. The gradients of
the convolutions' weights are computed beside the chain, on a stream of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from splitveil.functional.beside import add_gradient

CONVOLUTION: tuple[Any, ...] = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)  # 3 x 3, padded by one


@dataclass(frozen=True)
class Block:
    """The layers of one block, all [C] -> [C]."""

    first_norm: nn.BatchNorm2d
    first: nn.Conv2d
    second_norm: nn.BatchNorm2d
    second: nn.Conv2d


def tower(blocks: Sequence[Block], x: Tensor, side: torch.cuda.Stream | None = None) -> Tensor:
    """All blocks in training mode; running statistics are updated in place, as torch does.

    x [B, C, h, w] -> the same shape, channels last, in autocast's precision. The backward pass puts the gradients of
    the parameters straight into `.grad`, those of the convolutions' weights on the stream `side` (in line without one).
    x must need a gradient itself; the bias of `first`, whose gradient is zero, gets none.
    """
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))
    return _Tower.apply(x.contiguous(memory_format=torch.channels_last), list(blocks), side)


class _Tower(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, blocks: list[Block], side: torch.cuda.Stream | None) -> Tensor:
        from splitveil.functional import residual_forward as kernels

        sums = torch.zeros(2 * len(blocks), 2, x.shape[1], device=x.device)  # of every normalisation, in order
        weights = _converted([layer.weight for block in blocks for layer in (block.first, block.second)], x.dtype)
        saved: list[Tensor] = []
        kernels.add_up(x, sums[0])
        with torch.autocast(x.device.type, enabled=False):
            for place, block in enumerate(blocks):
                one, two = block.first_norm, block.second_norm
                conv1, conv2 = weights[2 * place : 2 * place + 2]
                a, mean1, inverse1 = kernels.normalise(x, sums[2 * place], one.weight, one.bias, _running(one))
                y = _in_order(torch.convolution(a, conv1, None, *CONVOLUTION))
                kernels.add_up(y, sums[2 * place + 1])
                b, mean2, inverse2 = kernels.normalise(
                    y, sums[2 * place + 1], two.weight, two.bias, _running(two), shift=block.first.bias
                )
                saved += [x, mean1, inverse1, a, conv1, y, mean2, inverse2, b, conv2]
                assert block.second.bias is not None
                out = _in_order(torch.convolution(b, conv2, None, *CONVOLUTION))
                x = kernels.join(out, x, block.second.bias, sums[2 * place + 2] if place + 1 < len(blocks) else None)
        ctx.save_for_backward(*saved, x)
        ctx.blocks, ctx.side = blocks, side
        return x

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        from splitveil.functional import residual_backward as kernels

        blocks: list[Block] = ctx.blocks
        *saved, answer = ctx.saved_tensors
        beside = _WeightGradients(ctx.side)
        # of each block: weight and bias of its normalisations, then the bias where its shortcut joins
        sums = torch.zeros(len(blocks), 5, answer.shape[1], device=answer.device)
        slope = slopes[0].contiguous(memory_format=torch.channels_last)
        slope = kernels.slope_of_input(answer, skip=slope, of_join=sums[-1, 4])
        with torch.autocast(answer.device.type, enabled=False):
            for place in reversed(range(len(blocks))):
                block = blocks[place]
                one, two = block.first_norm, block.second_norm
                x, mean1, inverse1, a, conv1, y, mean2, inverse2, b, conv2 = saved[10 * place : 10 * place + 10]
                norm = (two.weight, two.bias, mean2, inverse2)
                beside.weight(block.second, slope, b, conv2)
                through = _of_input(slope, b, conv2)
                kernels.slope_sums(through, y, norm, sums[place, 2:4])
                through = kernels.slope_of_input(y, slope=through, norm=norm, sums=sums[place, 2:4])
                norm = (one.weight, one.bias, mean1, inverse1)
                beside.weight(block.first, through, a, conv1)
                through = _of_input(through, a, conv1)
                kernels.slope_sums(through, x, norm, sums[place, :2])
                slope = kernels.slope_of_input(
                    x,
                    slope=through,
                    norm=norm,
                    sums=sums[place, :2],
                    skip=slope,
                    # the tower's own input came from elsewhere: no ReLU of ours, no bias
                    of_join=sums[place - 1, 4] if place else None,
                )
        beside.end()
        for block, (weight1, bias1, weight2, bias2, join) in zip(blocks, sums, strict=True):
            one, two = block.first_norm, block.second_norm
            parameters = (one.weight, one.bias, two.weight, two.bias, block.second.bias)
            for parameter, gradient in zip(parameters, (weight1, bias1, weight2, bias2, join), strict=True):
                assert parameter is not None
                add_gradient(parameter, gradient)
        return slope, None, None


class _WeightGradients:
    """Gradients of convolutions' weights, on another stream where there is one."""

    def __init__(self, side: torch.cuda.Stream | None) -> None:
        self.side = side
        self.layers: list[nn.Conv2d] = []
        self.found: list[Tensor] = []
        self.held: list[Tensor] = []  # read on the other stream: their memory must not be given away before the end

    def weight(self, layer: nn.Conv2d, slope: Tensor, x: Tensor, weight: Tensor) -> None:
        if self.side is not None:
            self.side.wait_stream(torch.cuda.current_stream(x.device))
        with torch.cuda.stream(self.side):  # does nothing where there is no such stream
            found = torch.ops.aten.convolution_backward(slope, x, weight, None, *CONVOLUTION, [False, True, False])
        self.layers.append(layer)
        self.found.append(found[1])
        self.held.append(slope)

    def end(self) -> None:
        """Wait for the other stream, and hand the gradients over."""
        if self.side is not None:
            here = torch.cuda.current_stream(self.held[0].device)
            here.wait_stream(self.side)
            for value in self.found:
                value.record_stream(here)
        for layer, gradient in zip(self.layers, _converted(self.found, torch.float32), strict=True):
            add_gradient(layer.weight, gradient)


def _of_input(slope: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    return _in_order(torch.ops.aten.convolution_backward(slope, x, weight, None, *CONVOLUTION, [True, False, False])[0])


def _in_order(x: Tensor) -> Tensor:
    """Channels last, which not every library of convolutions answers in; the kernels here look at memory alone."""
    return x.contiguous(memory_format=torch.channels_last)


def _running(norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor, float, float]:
    """What a kernel needs of the normalisation whose statistics it computes."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.momentum is not None
    return norm.running_mean, norm.running_var, norm.momentum, norm.eps


def _converted(values: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """The values in another precision, all by one kernel."""
    if all(value.dtype == dtype for value in values):
        return values
    found = [torch.empty_like(value, dtype=dtype) for value in values]
    torch._foreach_copy_(found, values)
    return found
