"""A small network for CPUs: three convolutions, pooled like VGG, so that 28x28 pictures give 7x7 features at the cut.

Layer list, which the cut counts: 1:16 2:M 3:32 4:M 5:64 6:M.
"""

from __future__ import annotations

from torch import nn

from splitveil.models.layers import xavier
from splitveil.models.vgg11 import conv_layers

PLAN = (16, "M", 32, "M", 64, "M")


class Tiny:
    """See the module docstring."""

    name = "tiny"
    default_cut = 4

    def layers(self, channels: int) -> list[nn.Module]:
        return conv_layers(PLAN, channels)

    def classifier(self, feature: tuple[int, ...], num_classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(feature[0] * feature[1] * feature[2], num_classes))

    def initialise_edge(self, edge: nn.Module) -> None:
        xavier(edge)
