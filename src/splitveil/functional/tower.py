"""A tower of equal pre-activation blocks, trained with few kernels (Triton, CUDA only).

    y = relu(x + conv2(relu(bn2(conv1(relu(bn1(x)))))))      once per block

On maps as small as a decoder's (8 x 8) a GPU spends its time between kernels, not in them. Layer by layer a block takes
about forty; here it takes about sixteen: what is done element by element is joined to the reduction beside it, weights
change precision all at once, and a bias that a normalisation takes out again is never added. The gradients of the
convolutions' weights are computed beside the chain, on a stream of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

PER_BLOCK = 7  # tensors: weight and bias of bn1, conv1's weight, weight and bias of bn2, weight and bias of conv2
CONVOLUTION: tuple[Any, ...] = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)  # 3 x 3, padded by one


@dataclass(frozen=True)
class Block:
    """The layers of one block, all [C] -> [C]."""

    first_norm: nn.BatchNorm2d
    first: nn.Conv2d
    second_norm: nn.BatchNorm2d
    second: nn.Conv2d

    def parameters(self) -> list[Tensor]:
        """What gets a gradient; not the bias of `first`, whose gradient is zero."""
        assert self.second.bias is not None
        one, two = self.first_norm, self.second_norm
        return [one.weight, one.bias, self.first.weight, two.weight, two.bias, self.second.weight, self.second.bias]


def tower(blocks: Sequence[Block], x: Tensor, side: torch.cuda.Stream | None = None) -> Tensor:
    """All blocks in training mode; running statistics are updated in place, as torch does.

    x [B, C, h, w] -> the same shape, channels last, in autocast's precision. `side` is the stream for the gradients of
    the weights; without it they are computed in line.
    """
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))
    parameters = [value for block in blocks for value in block.parameters()]
    return _Tower.apply(x.contiguous(memory_format=torch.channels_last), list(blocks), side, *parameters)


class _Tower(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, blocks: list[Block], side: torch.cuda.Stream | None, *parameters: Tensor
    ) -> Tensor:
        from splitveil.functional import norm_relu_kernels, tower_kernels

        counters = _counters(x, 2 * len(blocks) + 1)
        weights = _converted([value for value in parameters if value.ndim == 4], x.dtype)
        saved: list[Tensor] = []
        first = blocks[0].first_norm
        mean, inverse = norm_relu_kernels.statistics(x, *_following(first), counter=counters[-1])
        with torch.autocast(x.device.type, enabled=False):
            for place, block in enumerate(blocks):
                one, two = block.first_norm, block.second_norm
                conv1, conv2 = weights[2 * place : 2 * place + 2]
                a = norm_relu_kernels.apply(x, one.weight, one.bias, mean, inverse, True)
                y = torch.convolution(a, conv1, None, *CONVOLUTION)
                mean2, inverse2 = norm_relu_kernels.statistics(
                    y, *_following(two), shift=block.first.bias, counter=counters[2 * place]
                )
                b = norm_relu_kernels.apply(y, two.weight, two.bias, mean2, inverse2, True)
                out = torch.convolution(b, conv2, None, *CONVOLUTION)
                saved += [x, mean, inverse, a, y, mean2, inverse2, b, conv1, conv2]
                following = _following(blocks[place + 1].first_norm) if place + 1 < len(blocks) else None
                assert block.second.bias is not None
                x, mean, inverse = tower_kernels.join(out, x, block.second.bias, following, counters[2 * place + 1])
        ctx.save_for_backward(*saved, x, *parameters)
        ctx.count, ctx.side = len(blocks), side
        return x

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        from splitveil.functional import norm_relu_kernels, tower_kernels

        count: int = ctx.count
        saved = list(ctx.saved_tensors)
        layers, (answer, *parameters) = saved[: 10 * count], saved[10 * count :]
        beside = _Beside(ctx.side)
        counters = _counters(answer, 3 * count)
        gradients: list[Tensor | None] = [None] * len(parameters)
        slope = slopes[0].contiguous(memory_format=torch.channels_last)
        slope, of_bias = tower_kernels.part(None, slope, answer, None, counters[-1])
        with torch.autocast(answer.device.type, enabled=False):
            for place in reversed(range(count)):
                x, mean, inverse, a, y, mean2, inverse2, b, conv1, conv2 = layers[10 * place : 10 * place + 10]
                at = PER_BLOCK * place
                weight, bias, _, weight2, bias2, _, _ = parameters[at : at + PER_BLOCK]
                gradients[at + 6] = of_bias
                beside.weight(at + 5, slope, b, conv2)
                through = _of_input(slope, b, conv2)
                through, gradients[at + 3], gradients[at + 4] = norm_relu_kernels.backward(
                    through, y, weight2, bias2, mean2, inverse2, True, counters[3 * place]
                )
                beside.weight(at + 2, through, a, conv1)
                through = _of_input(through, a, conv1)
                of_weight, of_norm_bias = norm_relu_kernels.slope_sums(
                    through, x, weight, bias, mean, inverse, True, counters[3 * place + 1]
                )
                gradients[at], gradients[at + 1] = of_weight, of_norm_bias
                norm = (weight, bias, mean, inverse, of_weight, of_norm_bias)
                # the tower's own input came from elsewhere: no ReLU of ours, no bias
                counter = counters[3 * (place - 1) + 2] if place else None
                slope, of_bias = tower_kernels.part(through, slope, x, norm, counter)
        places, found = beside.join()
        for at, gradient in zip(places, _converted(found, torch.float32), strict=True):
            gradients[at] = gradient.to(parameters[at].dtype)
        return slope, None, None, *gradients


class _Beside:
    """Gradients of weights, on another stream where there is one."""

    def __init__(self, side: torch.cuda.Stream | None) -> None:
        self.side = side
        self.places: list[int] = []
        self.found: list[Tensor] = []
        self.held: list[Tensor] = []  # read on the other stream: their memory must not be given away before the end

    def weight(self, place: int, slope: Tensor, x: Tensor, weight: Tensor) -> None:
        if self.side is not None:
            self.side.wait_stream(torch.cuda.current_stream(x.device))
        with torch.cuda.stream(self.side):  # does nothing where there is no such stream
            _, of_weight, _ = torch.ops.aten.convolution_backward(
                slope, x, weight, None, *CONVOLUTION, [False, True, False]
            )
        self.places.append(place)
        self.found.append(of_weight)
        self.held.append(slope)

    def join(self) -> tuple[list[int], list[Tensor]]:
        if self.side is not None:
            here = torch.cuda.current_stream(self.found[0].device)
            here.wait_stream(self.side)
            for value in self.found:
                value.record_stream(here)
        return self.places, self.found


def _of_input(slope: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    of_x: Tensor = torch.ops.aten.convolution_backward(slope, x, weight, None, *CONVOLUTION, [True, False, False])[0]
    return of_x.contiguous(memory_format=torch.channels_last)


def _following(norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor, float, float]:
    """What a kernel needs of the normalisation whose statistics it computes."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    return norm.running_mean, norm.running_var, norm.momentum or 0.0, norm.eps


def _converted(values: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """The values in another precision, all by one kernel."""
    if all(value.dtype == dtype for value in values):
        return values
    found = [torch.empty_like(value, dtype=dtype) for value in values]
    torch._foreach_copy_(found, values)
    return found


def _counters(x: Tensor, count: int) -> Tensor:
    """One row for each reduction to come, all set to zero by one kernel."""
    from splitveil.functional.norm_relu_kernels import Layout, counters

    return counters(x, Layout(x), count)
