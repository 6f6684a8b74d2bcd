"""DISCO: a learned filter removes the channels that help a decoder most.

Paper: Singh et al. 2021, "DISCO: dynamic and invariant sensitive channel obfuscation for deep neural networks" (CVPR).
Formula: z̃ = z⊙M(z). A small network scores the channels of each picture from their spatial means; the share `ratio`
    with the lowest scores is set to zero. Backwards the 0/1 mask acts as sigm((score - k-th score)/temperature)
    (straight through). The filter minimises CE - weight·‖A(z⊙M) - x‖² (mean), A a decoder that trains beside it; the
    encoder sees the CE alone.
Defaults: ratio 0.5, weight 1, temperature 0.1, hidden 64; adversary as in `adversarial`.
Cost: a filter of about 2·hidden·channels parameters on the device, and (steps + 1) passes through the decoder per step.
Bytes: unchanged as dense values; a sparse code needs (1 - ratio) of them and one bit per channel.
Counter-attack: a fresh decoder on filtered features; refinement that knows which channels are missing.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from splitveil.defences.adversary import AdversaryDefence, AdversaryOptions
from splitveil.defences.base import Step
from splitveil.models.split import SplitModel


class DiscoOptions(AdversaryOptions):
    """The filter."""

    ratio: float = Field(0.5, ge=0, lt=1, description="share of each picture's channels that is set to zero")
    weight: float = Field(1.0, ge=0, description="weight of the reconstruction error that the filter maximises")
    temperature: float = Field(0.1, gt=0, description="softness of the mask in the backward pass")
    hidden: int = Field(64, ge=1, description="width of the filter")


class Disco(AdversaryDefence):
    """See the module docstring. Deterministic; contributes 0 to the noise power."""

    Options = DiscoOptions
    counter_attacks = ("decoder", "refine")
    options: DiscoOptions

    def attach(self, model: SplitModel) -> None:
        channels, hidden = model.feature_shape[0], self.options.hidden
        self.filter = nn.Sequential(nn.Linear(channels, hidden), nn.ReLU(), nn.Linear(hidden, channels))
        super().attach(model)

    def mask(self, z: Tensor) -> Tensor:
        """[B, C], exactly 0 or 1; gradient to the filter only."""
        # the filter reads the feature but does not steer the encoder
        score = self.filter(z.detach().flatten(2).mean(dim=2) if z.ndim > 2 else z.detach()).float()
        keep = max(1, score.shape[1] - round(self.options.ratio * score.shape[1]))
        best = score.detach().topk(keep, dim=1)
        hard = torch.zeros_like(score).scatter_(1, best.indices, 1.0)
        soft = torch.sigmoid((score - best.values[:, -1:]) / self.options.temperature)
        return hard + (soft - soft.detach())

    def transmit(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        mask = self.mask(z)
        return z * mask.view(*mask.shape, *[1] * (z.ndim - 2)).to(z.dtype)

    def watch(self, step: Step) -> Tensor:
        return self.transmit(step.z)

    def adversary_loss(self, seen: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(self.adversary(seen).float(), x)

    def loss(self, step: Step) -> Tensor | None:
        # z detached: the encoder sees the task alone
        return -self.options.weight * F.mse_loss(self.adversary(self.transmit(step.z.detach())).float(), step.x)
