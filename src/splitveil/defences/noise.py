"""Additive noise: z̃ = z + σ·ε with fresh ε for every transmission.

Gaussian: ε ~ N(0, 1). Laplace: ε of unit variance, i.e. scale 1/√2. σ is the standard deviation in both cases.
Sends as many bytes as without it. A knowing attacker trains on noisy features, or averages repeated transmissions.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from splitveil.core.options import Options as AnyOptions
from splitveil.defences.base import Defence


class NoiseOptions(AnyOptions):
    """`sigma` is the standard deviation (the notes' regularization_strength)."""

    sigma: float = Field(0.025, ge=0)
    law: Literal["gaussian", "laplace"] = "gaussian"


class Noise(Defence):
    """See the module docstring."""

    Options: ClassVar[type[AnyOptions]] = NoiseOptions
    counter_attacks = ("decoder",)
    options: NoiseOptions

    def transmit(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        if self.options.sigma == 0:
            return z
        if self.options.law == "gaussian":
            noise = torch.empty_like(z).normal_(generator=generator)
        else:
            # inverse CDF: u uniform in (-1/2, 1/2), -b·sign(u)·log(1 - 2|u|) with b = 1/√2 has unit variance
            u = torch.empty_like(z).uniform_(-0.5, 0.5, generator=generator)
            tail = (1 - 2 * u.abs()).clamp_min(torch.finfo(z.dtype).tiny)  # log(0) when u lands on the very edge
            noise = -u.sign() * tail.log() / math.sqrt(2)
        return z + self.options.sigma * noise

    def noise_power(self) -> float:
        return self.options.sigma**2
