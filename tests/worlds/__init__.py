"""Small worlds in which an attack has a known answer: pictures with few causes, and edge halves one can see through."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from splitveil import defences
from splitveil.attacks.base import ThreatModel
from splitveil.attacks.view import Scene, View
from splitveil.data.dataset import ImageSet
from splitveil.models.split import SplitModel

SIDE = 8
CLASSES = 3


def pictures(count: int, seed: int, channels: int = 1) -> ImageSet:
    """Grey ramps of random direction, offset and strength; the label is the third of the directions."""
    generator = torch.Generator().manual_seed(seed)
    angle, offset, strength = torch.rand(3, count, 1, 1, generator=generator)
    line = torch.linspace(-1, 1, SIDE)
    ramp = torch.cos(angle * torch.pi) * line[:, None] + torch.sin(angle * torch.pi) * line[None, :]  # [N, h, w]
    values = (0.25 + 0.5 * offset + 0.25 * strength * ramp).clamp(0, 1)
    images = (values * 255).round().to(torch.uint8)[:, None].expand(-1, channels, -1, -1).contiguous()
    return ImageSet(images, (angle.flatten() * CLASSES).long())


def patchwork(count: int, seed: int) -> ImageSet:
    """Sixteen independent 2 x 2 patches: what one place shows says nothing about the others."""
    values = torch.rand(count, 1, 4, 4, generator=torch.Generator().manual_seed(seed))
    images = (values * 255).round().to(torch.uint8).repeat_interleave(2, 2).repeat_interleave(2, 3)
    return ImageSet(images, torch.arange(count) % CLASSES)


class Constant(nn.Module):
    """An edge half that tells nothing: the same feature for every picture."""

    def forward(self, x: Tensor) -> Tensor:
        return x.new_full((len(x), 4, 4, 4), 0.5)


class Linear(nn.Module):
    """An edge half that is a fixed random matrix of full column rank."""

    def __init__(self, values: int = SIDE * SIDE, channels: int = 1) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.register_buffer("matrix", torch.randn(channels * SIDE * SIDE, values, generator=generator) / SIDE)

    def forward(self, x: Tensor) -> Tensor:
        return (x.flatten(1) @ self.matrix).unflatten(1, (-1, 4, 4))


class Cloud(nn.Module):
    """A cloud half for any feature: global mean of every channel, then a linear layer."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.head = nn.Linear(channels, CLASSES)

    def forward(self, z: Tensor) -> Tensor:
        return self.head(z.flatten(2).mean(2))


def split_model(edge: nn.Module, channels: int = 4, sigma: float = 0.0) -> SplitModel:
    """A model in eval mode whose parameters need no gradient, as an audit holds it."""
    torch.manual_seed(0)
    model = SplitModel(edge, Cloud(channels), num_classes=CLASSES)
    if sigma:
        model.defences["noise"] = defences.create("noise", sigma=sigma)
    return model.eval().requires_grad_(False)


def identity(sigma: float = 0.0) -> SplitModel:
    """Sends the picture itself, rearranged to 4 channels of 4 x 4."""
    return split_model(nn.PixelUnshuffle(2), 4, sigma)


def constant(sigma: float = 0.0) -> SplitModel:
    return split_model(Constant(), 4, sigma)


def scene(model: SplitModel, *, aux: int = 200, targets: int = 60, seed: int = 3, **more: object) -> Scene:
    return Scene(model, pictures(aux, seed=1), pictures(targets, seed=2), seed=seed, **more)  # type: ignore[arg-type]


def view(model: SplitModel, threat_model: ThreatModel, **sizes: int) -> View:
    return View(scene(model, **sizes), threat_model)


def mean_error(reconstruction: Tensor, targets: ImageSet) -> float:
    truth = targets.images[: len(reconstruction)].double() / 255
    return float((reconstruction.double() - truth).square().mean())


def floor_error(aux: ImageSet, targets: ImageSet) -> float:
    """Error of the attacker's mean picture."""
    return float((aux.images.double().mean(0) / 255 - targets.images.double() / 255).square().mean())
