"""Decoders that turn a feature back into a picture: the attacker's, and a defender's own adversary (SPEC 8.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from splitveil.core.errors import InputError
from splitveil.functional.beside import convolve_beside
from splitveil.functional.norm_relu import norm_relu
from splitveil.functional.tower import Block, tower

LANES = 8  # channels that a GPU's convolutions like multiples of


class Fusable(nn.Module):
    """A part of a decoder that can be trained with kernels of our own (CUDA only); set by `attacks.capture.fused`."""

    fused = False
    beside: torch.cuda.Stream | None = None  # where the gradients of convolutions' weights are computed


class NormReLU(Fusable):
    """Batch normalisation, then ReLU."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        # a narrow first layer costs next to nothing, and each width takes the kernels a while to compile
        if self.fused and self.training and self.norm.num_features > LANES:
            return fused_norm(self.norm, x)
        return F.relu(self.norm(x))


class PreActivationBlock(Fusable):
    """BN-ReLU-conv-BN-ReLU-conv plus shortcut; the shortcut is a 1x1 convolution (no bias) + BN where widths differ.

    On a GPU a block to few channels (a picture's three) has channels filled up to eight by zeros, which changes no
    number: convolutions are many times slower on three channels than on eight.
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.first_norm = NormReLU(channels)
        self.first = nn.Conv2d(channels, width, 3, padding=1)
        self.second_norm = NormReLU(width)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.side: nn.Conv2d | None = None
        if channels != width:
            self.side = nn.Conv2d(channels, width, 1, bias=False)
            self.side_norm = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        fused = self.fused and self.training
        if self.side is not None and self.width % LANES and (fused or wants_lanes(x)):
            return self._filled(x, self.side, -self.width % LANES)
        if fused:
            return self._fused(x)
        y = self.second(self.second_norm(self.first(self.first_norm(x))))
        return y + (x if self.side is None else self.side_norm(self.side(x)))

    def _fused(self, x: Tensor) -> Tensor:
        y = convolve_beside(self.first, self.first_norm(x), self.beside, biased=False)
        y = fused_norm(self.second_norm.norm, y, shift=self.first.bias)
        y = convolve_beside(self.second, y, self.beside)
        return y + (x if self.side is None else self.side_norm(convolve_beside(self.side, x, self.beside)))

    def _filled(self, x: Tensor, side: nn.Conv2d, more: int) -> Tensor:
        y = self.first_norm(x)
        if self.fused and self.training:
            y = convolve_beside(self.first, y, self.beside, biased=False, more=more)
            y = fused_norm(self.second_norm.norm, y, shift=self.first.bias)
            y = convolve_beside(self.second, y, self.beside, more=more)
            aside = fused_norm(self.side_norm, convolve_beside(side, x, self.beside, more=more), relu=False)
            return cast(Tensor, _FirstChannels.apply(y + aside, self.width))
        y = F.relu(_filled_norm(self.second_norm.norm, _filled_convolution(self.first, y, more)))
        aside = _filled_norm(self.side_norm, _filled_convolution(side, x, more))
        return (_filled_convolution(self.second, y, more) + aside)[:, : self.width]

    def layers(self) -> Block:
        """What `tower` needs of a block whose shortcut is the identity."""
        return Block(self.first_norm.norm, self.first, self.second_norm.norm, self.second)


class _FirstChannels(torch.autograd.Function):
    """The first `own` channels. Their gradient comes back channels last, which a slice of torch's own would not be."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, own: int) -> Tensor:
        ctx.channels = x.shape[1]
        return x[:, :own]

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        batch, own, height, width = slopes[0].shape
        of_x = slopes[0].new_empty(batch, height, width, ctx.channels).zero_().permute(0, 3, 1, 2)
        of_x[:, :own] = slopes[0]
        return of_x, None


def _filled_convolution(layer: nn.Conv2d, x: Tensor, more: int) -> Tensor:
    """The layer with `more` channels of zeros after its own, and weights of zero for channels that x has too many."""
    surplus = x.shape[1] - layer.in_channels
    weight = F.pad(layer.weight, (0, 0, 0, 0, 0, surplus, 0, more))
    bias = None if layer.bias is None else F.pad(layer.bias, (0, more))
    return F.conv2d(x, weight, bias, padding=layer.padding)


def _filled_norm(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """The layer itself, which leaves channels of zeros after its own at zero."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    own, more = norm.num_features, x.shape[1] - norm.num_features
    weight, bias, mean, var = (
        F.pad(value, (0, more)) for value in (norm.weight, norm.bias, norm.running_mean, norm.running_var)
    )
    y = F.batch_norm(x, mean, var, weight, bias, norm.training, norm.momentum or 0.0, norm.eps)
    if norm.training:
        norm.running_mean.copy_(mean[:own])
        norm.running_var.copy_(var[:own])
        norm.num_batches_tracked.add_(1)
    return y


def wants_lanes(x: Tensor) -> bool:
    """Whether convolutions on x are faster with channels in multiples of LANES."""
    return x.is_cuda


def fused_norm(norm: nn.BatchNorm2d, x: Tensor, *, relu: bool = True, shift: Tensor | None = None) -> Tensor:
    """Training-mode normalisation (and ReLU) by `norm_relu`; channels of x beyond the layer's own become zero.

    `shift` is a bias that was left out of x. torch's layer also counts batches, for an average over all of them that
    nobody asks for here.
    """
    assert norm.running_mean is not None
    assert norm.running_var is not None
    return norm_relu(
        x, norm.weight, norm.bias, norm.running_mean, norm.running_var, eps=norm.eps, relu=relu, shift=shift
    )


def in_turn(layers: Sequence[nn.Module], x: Tensor) -> Tensor:
    """One layer after the other."""
    for layer in layers:
        x = layer(x)
    return x


class ResidualDecoder(Fusable):
    """res_normN{blocks}C{width}: block to `width`, `blocks` more, doublings, a block to the picture, sigmoid.

    The number of doublings is log2(image side / feature side), rounded up; a last bilinear resize corrects sides that
    are not powers of two apart (28 = 4 x 7 needs none). The sigmoid is taken in float32 even where the layers run in
    half precision: eight bits of mantissa would round the picture.

    The layers run in `regions` through `run_region`, which may be replaced on an instance by a compiled version. Fused,
    the equal blocks train as one `tower`.
    """

    run_region = staticmethod(in_turn)

    def __init__(
        self, feature_shape: tuple[int, ...], image_shape: tuple[int, ...], *, blocks: int = 8, width: int = 64
    ) -> None:
        super().__init__()
        if len(feature_shape) != 3 or len(image_shape) != 3:
            raise InputError(f"A convolutional decoder needs [ch, h, w] features, not {feature_shape}.")
        self.image_side = (image_shape[1], image_shape[2])
        doublings = max(
            0, math.ceil(math.log2(max(image_shape[1] / feature_shape[1], image_shape[2] / feature_shape[2])))
        )
        layers: list[nn.Module] = [PreActivationBlock(feature_shape[0], width), nn.ReLU()]
        for _ in range(blocks):
            layers += [PreActivationBlock(width, width), nn.ReLU()]
        for _ in range(doublings):
            up = nn.ConvTranspose2d(width, width, 3, stride=2, padding=1, output_padding=1)
            layers += [up, NormReLU(width)]
        layers += [PreActivationBlock(width, image_shape[0])]
        self.layers = nn.Sequential(*layers)
        self.blocks = blocks

    def regions(self) -> list[tuple[nn.Module, ...]]:
        """The layers in groups: each block with its ReLU, then all that enlarges. Equal groups need compiling once."""
        layers = list(self.layers)
        tail = 2 * (self.blocks + 1)
        return [*((layers[place], layers[place + 1]) for place in range(0, tail, 2)), tuple(layers[tail:])]

    def forward(self, z: Tensor) -> Tensor:
        if self.fused and self.training:
            x = self._fused(z)
        else:
            x = z
            for region in self.regions():
                x = self.run_region(region, x)
        if tuple(x.shape[2:]) != self.image_side:
            x = F.interpolate(x, size=self.image_side, mode="bilinear", align_corners=False)
        return x.to(torch.promote_types(x.dtype, torch.float32)).sigmoid()

    def _fused(self, z: Tensor) -> Tensor:
        """All layers; a bias before a normalisation is left out, for it would be taken out again."""
        head, relu, *rest = self.layers
        x = relu(head(z))
        blocks = [block.layers() for block in rest[: 2 * self.blocks : 2] if isinstance(block, PreActivationBlock)]
        if blocks:
            x = tower(blocks, x, self.beside)
        *enlarging, last = rest[2 * self.blocks :]
        for up, norm in zip(enlarging[::2], enlarging[1::2], strict=True):
            assert isinstance(up, nn.ConvTranspose2d)
            assert isinstance(norm, NormReLU)
            x = fused_norm(norm.norm, convolve_beside(up, x, self.beside, biased=False), shift=up.bias)
        return cast(Tensor, last(x))
