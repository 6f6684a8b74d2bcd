"""Convolutions that compute the gradient of their weights beside the rest of the backward pass.

A backward pass is a chain: each layer waits for the gradient of the layer after it. The gradient of the weights is not
part of that chain, but torch computes it in line. On a GPU that small layers do not fill, a second stream takes it off
the chain; the streams meet again when the backward pass ends.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class _Beside(torch.autograd.Function):
    """A convolution whose backward pass returns the gradient of x and writes those of the parameters itself."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        layer: nn.Conv2d | nn.ConvTranspose2d,
        side: torch.cuda.Stream | None,
        biased: bool,
        more: int,
    ) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            weight = _filled(layer.weight, x.dtype, more, _surplus(layer, x))
            bias = None if layer.bias is None or not biased else _filled(layer.bias, x.dtype, more)
            ctx.save_for_backward(x, weight)
            ctx.layer, ctx.side, ctx.biased = layer, side, bias is not None
            return torch.convolution(x, weight, bias, *_settings(layer))

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        (slope,), (x, weight) = slopes, ctx.saved_tensors
        layer: nn.Conv2d | nn.ConvTranspose2d = ctx.layer
        biased: bool = ctx.biased
        bias_sizes = [slope.shape[1]] if biased else None

        def gradients(mask: list[bool]) -> tuple[Tensor, Tensor, Tensor]:
            return torch.ops.aten.convolution_backward(slope, x, weight, bias_sizes, *_settings(layer), mask)

        def of_parameters() -> None:
            """Straight into `.grad`: torch would move them there on the stream that must not wait."""
            _, of_weight, of_bias = gradients([False, True, biased])
            add_gradient(layer.weight, of_weight)
            if biased:
                assert layer.bias is not None
                add_gradient(layer.bias, of_bias)

        side: torch.cuda.Stream | None = ctx.side
        if side is None:
            of_parameters()
        else:
            device = x.device
            side.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(side):
                of_parameters()
            for used in (slope, x, weight):
                used.record_stream(side)  # its memory must not be given away while the other stream reads it
            torch.autograd.Variable._execution_engine.queue_callback(
                lambda: torch.cuda.current_stream(device).wait_stream(side)
            )
        of_x = gradients([True, False, False])[0] if ctx.needs_input_grad[0] else None
        return of_x, None, None, None, None


def _settings(layer: nn.Conv2d | nn.ConvTranspose2d) -> tuple[Any, ...]:
    """Stride, padding, dilation, transposed, output padding and groups, as torch's convolution wants them."""
    turned = isinstance(layer, nn.ConvTranspose2d)
    return layer.stride, layer.padding, layer.dilation, turned, layer.output_padding, layer.groups


def _surplus(layer: nn.Conv2d | nn.ConvTranspose2d, x: Tensor) -> int:
    """How many channels x has beyond those that the layer reads."""
    return x.shape[1] - layer.in_channels


def _filled(value: Tensor, dtype: torch.dtype, more: int, surplus: int = 0) -> Tensor:
    """A weight or bias in another precision, with zeros for `more` channels out and `surplus` channels in."""
    if not more and not surplus:
        return value.to(dtype)
    out, *into = value.shape
    if into:
        into[0] += surplus
    # with a tensor's own order of dimensions, as padding by torch has it
    order = torch.channels_last if value.ndim == 4 else torch.contiguous_format
    full = torch.empty(out + more, *into, dtype=dtype, device=value.device, memory_format=order).zero_()
    full[tuple(slice(size) for size in value.shape)] = value
    return full


def add_gradient(parameter: Tensor, slope: Tensor) -> None:
    """Add `slope` to `parameter.grad`, as torch does at the end of a backward pass, but without a copy.

    Where `slope` has padding channels, only the part that belongs to the parameter is added.
    """
    if slope.shape == parameter.shape:
        slope = slope.to(parameter.dtype)
    else:
        slope = torch.empty_like(parameter).copy_(slope[tuple(slice(size) for size in parameter.shape)])
    parameter.grad = slope if parameter.grad is None else parameter.grad + slope


def convolve_beside(
    layer: nn.Conv2d | nn.ConvTranspose2d,
    x: Tensor,
    side: torch.cuda.Stream | None,
    *,
    biased: bool = True,
    more: int = 0,
) -> Tensor:
    """`layer(x)`, whose backward pass writes the gradients of the layer's parameters to `.grad` on the stream `side`.

    - Under autocast it computes in autocast's precision.
    - Without `side` (on a CPU) everything runs in line.
    - A layer whose input needs no gradient (the first of a network, or any layer outside training) is left to torch.
    - `biased=False` leaves out the bias, for a normalisation that follows and would subtract it again.
    - `more` zero channels are appended to the output, and surplus input channels are not read: padding to a width that
      a GPU handles faster. Neither works for transposed convolutions.
    """
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))
    if x.requires_grad:
        return _Beside.apply(x, layer, side, biased, more)
    surplus = _surplus(layer, x)
    if not more and not surplus and (biased or layer.bias is None):
        return layer(x)
    weight = F.pad(layer.weight, (0, 0, 0, 0, 0, surplus, 0, more)) if more or surplus else layer.weight
    bias = None if layer.bias is None or not biased else F.pad(layer.bias, (0, more)).to(x.dtype)
    return torch.convolution(x, weight.to(x.dtype), bias, *_settings(layer))
