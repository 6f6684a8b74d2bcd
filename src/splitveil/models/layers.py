"""Layered networks that can be cut between any two of their layers.

A network is a list of layers and a classifier. The edge half gets the first `cut` layers, the cloud half the rest:

    edge:   normalise -> layers[:cut] -> narrow (filled by defences) -> output (sigmoid, batch norm or nothing)
    cloud:  widen (filled by defences) -> layers[cut:] -> classifier

Pictures enter as floats in [0, 1]; the edge normalises them, so nobody outside has to know how.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from splitveil.core.errors import ConfigError, reason
from splitveil.models.split import SplitModel, feature_shape


class Architecture(Protocol):
    """What a network file provides."""

    name: str
    default_cut: int

    def layers(self, channels: int) -> list[nn.Module]:
        """The layers that the cut counts."""

    def classifier(self, feature: tuple[int, ...], num_classes: int) -> nn.Module:
        """What follows the last layer, given its output shape."""

    def initialise_edge(self, edge: nn.Module) -> None:
        """Set the weights of the edge half."""


class Normalise(nn.Module):
    """(x - mean) / std per channel. Holds no parameters; the numbers travel with the weights as buffers."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


class LayeredEdge(nn.Module):
    """The device's half."""

    def __init__(self, normalise: nn.Module, layers: list[nn.Module], output: str, channels: int) -> None:
        super().__init__()
        self.normalise = normalise
        self.layers = nn.Sequential(*layers)
        self.narrow = nn.Sequential()  # defences put the bottleneck and sparse coding here
        # SPEC 7.1: batch norm replaces the sigmoid over the bottleneck's channels; without bottleneck nothing is added
        self.output: nn.Module = nn.Sigmoid() if output == "sigmoid" else nn.Identity()
        self.output_kind = output
        self.channels = channels  # channels that leave this half

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.narrow(self.layers(self.normalise(x))))


class LayeredCloud(nn.Module):
    """The server's half."""

    def __init__(self, layers: list[nn.Module], classifier: nn.Module) -> None:
        super().__init__()
        self.widen = nn.Sequential()  # defences put the bottleneck's counterpart here
        self.layers = nn.Sequential(*layers)
        self.classifier = classifier

    def forward(self, z: Tensor) -> Tensor:
        return self.classifier(self.layers(self.widen(z)))


def build_split(
    architecture: type[Architecture],
    *,
    image_shape: tuple[int, int, int],
    num_classes: int,
    cut: int | None = None,
    output: str = "sigmoid",
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> SplitModel:
    """Cut an architecture and wire its halves."""
    net = architecture()
    if len(image_shape) != 3:
        raise ConfigError(f"image_shape {image_shape} must be (channels, height, width).")
    channels = image_shape[0]
    layers = net.layers(channels)
    cut = net.default_cut if cut is None else cut
    if not 1 <= cut < len(layers):
        raise ConfigError(
            f"model.cut = {cut} is outside {net.name}, which has {len(layers)} layers.",
            f"Choose a cut from 1 to {len(layers) - 1} (default {net.default_cut}).",
        )
    if min(image_shape) < 1 or num_classes < 1:
        raise ConfigError(f"image_shape {image_shape} and num_classes {num_classes} must be positive.")
    shapes = _shapes(net.name, layers, image_shape)
    at_cut, last = shapes[cut - 1], shapes[-1]
    normalise = Normalise(mean or [0.5] * channels, std or [0.5] * channels)
    edge = LayeredEdge(normalise, layers[:cut], output, channels=at_cut[0])
    classifier = net.classifier(last, num_classes)
    if (logits := _shape_after(f"The classifier of {net.name}", classifier, last)) != (num_classes,):
        raise ConfigError(f"The classifier of {net.name} gives {list(logits)}, not one number for each class.")
    cloud = LayeredCloud(layers[cut:], classifier)
    net.initialise_edge(edge)
    return SplitModel(edge, cloud, image_shape=image_shape, num_classes=num_classes)


def _shapes(name: str, layers: list[nn.Module], image_shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """What each layer gives for one picture, by running them: any image size works, nothing is computed by hand."""
    shapes = []
    shape = image_shape
    for number, layer in enumerate(layers, start=1):
        shape = _shape_after(f"Layer {number} of {name}", layer, shape)
        shapes.append(shape)
    return shapes


def _shape_after(what: str, layer: nn.Module, shape: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return feature_shape(layer, shape)
    except Exception as error:  # whatever a layer says to a picture that is too small for it
        raise ConfigError(
            f"{what} does not take what reaches it, {list(shape)}: {reason(error).rstrip('.')}.",
            "Choose pictures of another size, or another model.",
        ) from error


def xavier(module: nn.Module) -> None:
    """Xavier-uniform weights and zero biases in every convolution and linear layer (SPEC 7.1: the encoder's start)."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
