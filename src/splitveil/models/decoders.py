"""Decoders that turn a feature back into a picture: the attacker's, and a defender's own adversary (SPEC 8.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from splitveil.core.errors import InputError
from splitveil.functional.norm_relu import norm_relu


class NormReLU(nn.Module):
    """Batch normalisation, then ReLU. `fused` trains with kernels that do both at once (CUDA only)."""

    fused = False

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        norm = self.norm
        if not (self.fused and self.training):
            return F.relu(norm(x))
        assert norm.running_mean is not None
        assert norm.running_var is not None
        # torch also counts batches, for an average of all of them that nobody asks for here
        return norm_relu(x, norm.weight, norm.bias, norm.running_mean, norm.running_var, eps=norm.eps)


class PreActivationBlock(nn.Module):
    """BN-ReLU-conv-BN-ReLU-conv plus shortcut; the shortcut is a 1x1 convolution (no bias) + BN where widths differ."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            NormReLU(channels),
            nn.Conv2d(channels, width, 3, padding=1),
            NormReLU(width),
            nn.Conv2d(width, width, 3, padding=1),
        )
        self.shortcut: nn.Module = nn.Identity()
        if channels != width:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + self.shortcut(x)


def in_turn(layers: Sequence[nn.Module], x: Tensor) -> Tensor:
    """One layer after the other."""
    for layer in layers:
        x = layer(x)
    return x


class ResidualDecoder(nn.Module):
    """res_normN{blocks}C{width}: block to `width`, `blocks` more, doublings, a block to the picture, sigmoid.

    The number of doublings is log2(image side / feature side), rounded up; a last bilinear resize corrects sides that
    are not powers of two apart (28 = 4 x 7 needs none). The sigmoid is taken in float32 even where the layers run in
    half precision: eight bits of mantissa would round the picture.

    The layers run in `regions` through `run_region`, which may be replaced on an instance by a compiled version.
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
        x = z
        for region in self.regions():
            x = self.run_region(region, x)
        if tuple(x.shape[2:]) != self.image_side:
            x = F.interpolate(x, size=self.image_side, mode="bilinear", align_corners=False)
        return x.to(torch.promote_types(x.dtype, torch.float32)).sigmoid()
