"""Additive noise, fresh for every transmission.

Paper: Titcombe et al. 2021, "Practical defences against model inversion attacks for split neural networks"; the
    Gaussian law as in the CEM experiments (arXiv 2503.00383).
Formula: z̃ = z + s⊙ε. Gaussian: ε ~ N(0, 1). Laplace: ε of unit variance, i.e. scale 1/√2. Scale fixed: s = σ.
    Scale learned: s = σ·e^ρ / rms(e^ρ), one ρ per element, so that training places the noise where the task needs the
    feature least while the power stays σ² (without that budget the task would learn it away).
Defaults: sigma 0.025, law gaussian, scale fixed.
Cost: one draw per value; learned scale adds D parameters.
Bytes: unchanged.
Counter-attack: train the decoder on noisy features, and average repeated transmissions (σ/√n after n).
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from splitveil.core.options import Options as AnyOptions
from splitveil.defences.base import Defence
from splitveil.models.split import SplitModel


class NoiseOptions(AnyOptions):
    """`sigma` is the standard deviation (the notes' regularization_strength)."""

    sigma: float = Field(0.025, ge=0, description="standard deviation; root mean square over elements when learned")
    law: Literal["gaussian", "laplace"] = Field("gaussian", description="distribution of the noise")
    scale: Literal["fixed", "learned"] = Field("fixed", description="one scale for all elements, or one learned each")


class Noise(Defence):
    """See the module docstring."""

    Options = NoiseOptions
    counter_attacks = ("decoder", "average")
    options: NoiseOptions
    rho: nn.Parameter | None

    def __init__(self, options: AnyOptions) -> None:
        super().__init__(options)
        self.register_parameter("rho", None)

    def attach(self, model: SplitModel) -> None:
        if self.options.scale == "learned":
            self.rho = nn.Parameter(torch.zeros(model.feature_shape))  # equal scales at the start

    def transmit(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        if self.options.sigma == 0:
            return z
        return z + (self.scale() * unit_noise(z, self.options.law, generator)).to(z.dtype)

    def scale(self) -> Tensor | float:
        """Standard deviation of each element, or one for all."""
        if self.rho is None:
            return self.options.sigma
        weight = (self.rho - self.rho.detach().max()).exp()  # the shift cancels in the ratio and keeps e^ρ finite
        return self.options.sigma * weight / weight.square().mean().sqrt()

    @property
    def idle(self) -> bool:
        return self.options.sigma == 0

    def noise_power(self) -> float:
        return self.options.sigma**2


def unit_noise(z: Tensor, law: str, generator: torch.Generator | None) -> Tensor:
    """Noise of unit variance, shaped like z."""
    if law == "gaussian":
        return torch.empty_like(z).normal_(generator=generator)
    # inverse CDF: u uniform in (-1/2, 1/2), -b·sign(u)·log(1 - 2|u|) with b = 1/√2 has unit variance
    u = torch.empty_like(z, dtype=torch.float32).uniform_(-0.5, 0.5, generator=generator)
    tail = (1 - 2 * u.abs()).clamp_min(torch.finfo(u.dtype).tiny)  # log(0) when u lands on the very edge
    return (-u.sign() * tail.log() / math.sqrt(2)).to(z.dtype)
