"""Variational information bottleneck: noise that depends on the feature, and a penalty towards a normal prior.

Paper: Alemi et al. 2017, "Deep variational information bottleneck"; as a defence Wang et al. 2021, "Improving
    robustness to model inversion attacks via mutual information regularization" (MID, AAAI).
Formula: z̃ = z + s(z)⊙ε, ε ~ N(0, I), log s² = V∗z + b (a 1x1 convolution with bias); the task loss gets
    + weight·KL(N(z, s²) ‖ N(0, I)) = weight·mean_i ½·Σ_d (s² + z² - 1 - log s²).
Defaults: weight 1e-3, sigma 0.1 (the scale at the start).
Cost: a 1x1 convolution (channels² + channels parameters) and one draw per value.
Bytes: unchanged.
Counter-attack: train the decoder on noisy features, and average repeated transmissions.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor, nn

from splitveil.core.options import Options as AnyOptions
from splitveil.defences.base import Defence, Step
from splitveil.defences.noise import unit_noise
from splitveil.functional.processes import mean_over_processes
from splitveil.models.split import SplitModel

FORGET = 0.05  # how fast the running noise power follows; about the last 20 steps


class VibOptions(AnyOptions):
    """Weight of the penalty and the noise at the start."""

    weight: float = Field(1e-3, ge=0, description="beta, weight of the KL divergence, summed over a feature's values")
    sigma: float = Field(0.1, gt=0, description="standard deviation of the noise at the start")


class Vib(Defence):
    """See the module docstring. The noise power is a running mean of s² over training steps."""

    Options = VibOptions
    counter_attacks = ("decoder", "average")
    learns_noise = True
    options: VibOptions
    power: Tensor

    def __init__(self, options: AnyOptions) -> None:
        super().__init__(options)
        self.register_buffer("power", torch.tensor(self.options.sigma**2))

    def attach(self, model: SplitModel) -> None:
        channels = model.feature_shape[0]
        self.head = nn.Linear(channels, channels)
        nn.init.zeros_(self.head.weight)  # the same noise everywhere until training says otherwise
        nn.init.constant_(self.head.bias, 2 * math.log(self.options.sigma))

    def log_variance(self, z: Tensor) -> Tensor:
        """log s², shaped like z. Clamped so that neither s² nor 1/s² overflows."""
        return self.head(z.movedim(1, -1)).movedim(-1, 1).float().clamp(-20.0, 20.0)

    def transmit(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        variance = self.log_variance(z).exp()
        if self.training and torch.is_grad_enabled():
            self.power.lerp_(mean_over_processes(variance.detach().mean()), FORGET)
        return z + (variance.sqrt() * unit_noise(z, "gaussian", generator)).to(z.dtype)

    def loss(self, step: Step) -> Tensor | None:
        z, log_variance = step.z.float(), self.log_variance(step.z)
        divergence = 0.5 * (log_variance.exp() + z.square() - 1 - log_variance)  # KL per value
        return self.options.weight * divergence.flatten(1).sum(dim=1).mean()

    def noise_power(self) -> float:
        return float(self.power)
