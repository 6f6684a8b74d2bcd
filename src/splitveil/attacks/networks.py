"""The adversary's decoders. A name such as "residual-N8C64" says kind, number of blocks and width.

residual   SPEC 8.1's: residual blocks, then transposed convolutions up to the picture
shuffle    all work at the feature's own resolution, one pixel shuffle at the end: the cheap one for CPUs
dense      a linear map that mixes every value with every other, then a residual decoder: undoes scrambled positions
attention  self-attention over positions, then a residual decoder: mixes globally with few parameters
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from splitveil.attacks.initialising import seeded
from splitveil.models.decoders import PreActivationBlock, ResidualDecoder

Kind = Literal["residual", "shuffle", "dense", "attention"]
Shape = tuple[int, ...]
DENSE_HIDDEN = 1024  # a wider feature is first reduced to so many values; keeps the matrix small enough to fit


class ShuffleDecoder(nn.Module):
    """Residual blocks on the feature map, then a convolution to ch·r² channels and a pixel shuffle by r."""

    def __init__(self, feature_shape: Shape, image_shape: Shape, *, blocks: int, width: int) -> None:
        super().__init__()
        self.image_side = (image_shape[1], image_shape[2])
        factor = max(1, math.ceil(max(image_shape[1] / feature_shape[1], image_shape[2] / feature_shape[2])))
        layers: list[nn.Module] = [PreActivationBlock(feature_shape[0], width), nn.ReLU()]
        for _ in range(blocks):
            layers += [PreActivationBlock(width, width), nn.ReLU()]
        layers += [nn.Conv2d(width, image_shape[0] * factor**2, 3, padding=1), nn.PixelShuffle(factor)]
        self.layers = nn.Sequential(*layers)

    def forward(self, z: Tensor) -> Tensor:
        x = self.layers(z)
        if tuple(x.shape[2:]) != self.image_side:
            x = F.interpolate(x, size=self.image_side, mode="bilinear", align_corners=False)
        return x.sigmoid()


class DenseDecoder(nn.Module):
    """Flatten, a linear map to a [width, h/4, w/4] map, then residual decoding. Takes features of any shape."""

    def __init__(self, feature_shape: Shape, image_shape: Shape, *, blocks: int, width: int) -> None:
        super().__init__()
        self.map_shape = (width, math.ceil(image_shape[1] / 4), math.ceil(image_shape[2] / 4))
        values = math.prod(feature_shape)
        reduce: nn.Module = nn.Identity()
        if values > DENSE_HIDDEN:
            reduce, values = nn.Linear(values, DENSE_HIDDEN), DENSE_HIDDEN
        self.front = nn.Sequential(nn.Flatten(), reduce, nn.Linear(values, math.prod(self.map_shape)))
        self.decoder = ResidualDecoder(self.map_shape, image_shape, blocks=blocks, width=width)

    def forward(self, z: Tensor) -> Tensor:
        return self.decoder(self.front(z).unflatten(1, self.map_shape))


class AttentionDecoder(nn.Module):
    """Positions as tokens with learned places, transformer layers, then residual decoding."""

    def __init__(self, feature_shape: Shape, image_shape: Shape, *, blocks: int, width: int) -> None:
        super().__init__()
        channels, height, columns = feature_shape
        self.side = (height, columns)
        self.embed = nn.Linear(channels, width)
        self.place = nn.Parameter(0.02 * torch.randn(height * columns, width))
        layer = nn.TransformerEncoderLayer(
            width, nhead=max(1, width // 16), dim_feedforward=2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.mixer = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.decoder = ResidualDecoder((width, height, columns), image_shape, blocks=blocks, width=width)

    def forward(self, z: Tensor) -> Tensor:
        tokens = self.embed(z.flatten(2).transpose(1, 2)) + self.place  # [B, h·w, width]
        mixed = self.mixer(tokens).transpose(1, 2).unflatten(2, self.side)  # [B, width, h, w]
        return self.decoder(mixed.contiguous())


def build(
    kind: Kind, feature_shape: Shape, image_shape: Shape, *, blocks: int, width: int, generator: torch.Generator
) -> nn.Module:
    """A freshly initialised decoder on the generator's device. A feature without positions always gets a dense one."""
    if len(feature_shape) != 3:
        kind = "dense"
    classes = {
        "residual": ResidualDecoder,
        "shuffle": ShuffleDecoder,
        "dense": DenseDecoder,
        "attention": AttentionDecoder,
    }
    with seeded(generator):
        decoder = classes[kind](feature_shape, image_shape, blocks=blocks, width=width)
    return decoder.to(generator.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
