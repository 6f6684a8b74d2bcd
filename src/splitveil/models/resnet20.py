"""ResNet-20 and ResNet-32 as the CEM experiments use them (SPEC 7.2; He et al. 2016).

Layers, which the cut counts: 1 the stem (conv 5x5 to 16), then blocks of width 32, 64 and 128, each stage entered with
stride 2. The shortcut across a stride is subsampling plus zero channels, so it has no parameters.
"""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn

WIDTHS = (32, 64, 128)


class Block(nn.Module):
    """Two 3x3 convolutions and a parameter-free shortcut."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.stride = stride
        self.extra_channels = width - channels

    def forward(self, x: Tensor) -> Tensor:
        shortcut = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.extra_channels))
        return F.relu(self.body(x) + shortcut)


class ResNet20:
    """See the module docstring."""

    name = "resnet20"
    default_cut = 5
    blocks_per_stage = 3

    def layers(self, channels: int) -> list[nn.Module]:
        stem = nn.Sequential(nn.Conv2d(channels, 16, 5, padding=2, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        layers: list[nn.Module] = [stem]
        current = 16
        for width in WIDTHS:
            for index in range(self.blocks_per_stage):
                layers.append(Block(current, width, stride=2 if index == 0 else 1))
                current = width
        for layer in layers:
            _normal_convolutions(layer)
        return layers

    def classifier(self, feature: tuple[int, ...], num_classes: int) -> nn.Module:
        return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(feature[0], num_classes))

    def initialise_edge(self, edge: nn.Module) -> None:
        """Both halves were initialised alike when the layers were made."""


class ResNet32(ResNet20):
    """Five blocks per stage."""

    name = "resnet32"
    blocks_per_stage = 5


def _normal_convolutions(module: nn.Module) -> None:
    """Convolutions drawn from N(0, sqrt(2 / (k² · out)))."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.normal_(layer.weight, 0.0, math.sqrt(2.0 / (layer.kernel_size[0] ** 2 * layer.out_channels)))
