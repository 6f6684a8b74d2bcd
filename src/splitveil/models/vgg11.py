"""VGG-11 with batch normalisation (SPEC 7.1; Simonyan and Zisserman 2015, configuration A).

Layer list, which the cut counts: 1:64 2:M 3:128 4:M 5:256 6:256 7:M 8:512 9:512 10:M 11:512 12:512 13:M.
"""

from __future__ import annotations

from torch import nn

from splitveil.models.layers import xavier

PLAN = (64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M")


def conv_layers(plan: tuple[int | str, ...], channels: int) -> list[nn.Module]:
    """Number: conv 3x3 pad 1 (bias) + BN + ReLU. "M": max-pool 2x2, rounding up so that any image size survives.

    The bias is there but does not train: the normalisation takes it out again, so that its gradient is zero, and
    computing that zero takes a GPU some 5 % of a step.
    """
    layers: list[nn.Module] = []
    for item in plan:
        if isinstance(item, int):
            convolution = nn.Conv2d(channels, item, 3, padding=1)
            assert convolution.bias is not None
            convolution.bias.requires_grad_(False)
            layers.append(nn.Sequential(convolution, nn.BatchNorm2d(item), nn.ReLU()))
            channels = item
        else:
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
    return layers


class Vgg11:
    """See the module docstring."""

    name = "vgg11"
    default_cut = 4

    def layers(self, channels: int) -> list[nn.Module]:
        return conv_layers(PLAN, channels)

    def classifier(self, feature: tuple[int, ...], num_classes: int) -> nn.Module:
        width = 512
        return nn.Sequential(
            nn.Flatten(),
            nn.Dropout(0.5),
            nn.Linear(feature[0] * feature[1] * feature[2], width),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, num_classes),
        )

    def initialise_edge(self, edge: nn.Module) -> None:
        xavier(edge)
