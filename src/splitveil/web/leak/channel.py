"""From the device to the listener at any noise level: the run's own defences, with sigma in the visitor's hand.

Where the run has a `noise` defence, its sigma is replaced and its law and shape are kept; where it has none, Gaussian
noise is added to what is sent. All other defences act as they do in the run.
"""

from __future__ import annotations

import torch
from torch import Tensor

from splitveil.core.errors import InputError
from splitveil.data.augment import to_float
from splitveil.defences.noise import Noise, unit_noise
from splitveil.models.split import SplitModel, transmitted

CHUNK = 512
Level = float | Tensor  # one sigma, or one for each picture [B, 1, ...]


class Channel:
    """What is sent for a picture, as a function of sigma."""

    def __init__(self, model: SplitModel) -> None:
        self.model = model
        self.own_noise = next((part for part in model.defences.values() if isinstance(part, Noise)), None)
        self.feature_shape = model.feature_shape

    @property
    def sigma(self) -> float:
        """The run's own noise level."""
        return float(self.own_noise.options.sigma) if self.own_noise is not None else 0.0

    def shape(self) -> Tensor | float:
        """Standard deviation of the noise on each value at sigma = 1; its mean square is 1."""
        scale = self.own_noise.scale() if self.own_noise is not None else 1.0
        if not isinstance(scale, Tensor):
            return 1.0
        scale = scale.detach()  # a learned scale is a parameter's function; nobody trains it here
        power = scale.square().mean().sqrt()
        return scale / power if float(power) > 0 else 1.0

    @torch.no_grad()
    def features(self, pictures: Tensor) -> Tensor:
        """Clean features of pictures, [N, ...]: uint8, or floats in [0, 1]."""
        return torch.cat([self.model.edge(_unit(piece)) for piece in pictures.split(CHUNK)])

    @torch.no_grad()
    def send(self, z: Tensor, sigma: Level, generator: torch.Generator) -> Tensor:
        """What a listener receives for the clean features z."""
        law = self.own_noise.options.law if self.own_noise is not None else "gaussian"
        pending = self.own_noise is None
        for defence in self.model.defences.values():
            if defence is self.own_noise:
                z = z + sigma * self.shape() * unit_noise(z, law, generator)
            else:
                z = transmitted(z, [defence], generator)
        sent = z + sigma * unit_noise(z, law, generator) if pending else z
        if not bool(torch.isfinite(sent).all()):
            raise InputError("The model of this run sends values that are not finite.", "Its training has failed.")
        return sent

    @torch.no_grad()
    def answer(self, sent: Tensor) -> Tensor:
        """The cloud's probabilities [B, classes]."""
        return torch.softmax(self.model.cloud(sent).float(), dim=1)


def _unit(pictures: Tensor) -> Tensor:
    return to_float(pictures) if pictures.dtype == torch.uint8 else pictures
