"""Cloak: a noise scale per element, learned to be as large as the task allows.

Paper: Mireshghallah et al. 2021, "Not all features are equal: discovering essential features for preserving prediction
    privacy" (WWW); there on the input, here on the feature at the cut.
Formula: z̃ = z + s⊙ε, ε ~ N(0, I), s = max_sigma·sigm(ρ), one ρ per element; the task loss gets - weight·mean_d log s².
    With `suppress`, an element whose s has passed that value is not sent at all: a learned constant takes its place.
Defaults: weight 0.1, sigma 0.1 (at the start), max_sigma 1, no suppression.
Cost: one draw per value; D parameters (2·D with suppression).
Bytes: unchanged; with suppression only the elements that are left need sending.
Counter-attack: train the decoder on noisy features, and average repeated transmissions.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from splitveil.core.options import Options as AnyOptions
from splitveil.defences.base import Defence, Step
from splitveil.defences.noise import unit_noise
from splitveil.models.split import SplitModel


class CloakOptions(AnyOptions):
    """Weight of the reward for noise, and its limits."""

    weight: float = Field(0.1, ge=0, description="weight of the mean log variance of the noise")
    sigma: float = Field(0.1, gt=0, description="standard deviation at the start")
    max_sigma: float = Field(1.0, gt=0, description="largest standard deviation of an element")
    suppress: float | None = Field(None, gt=0, description="replace elements noisier than this by a learned constant")

    @model_validator(mode="after")
    def _inside(self) -> CloakOptions:
        if self.sigma >= self.max_sigma:
            raise ValueError(f"sigma = {self.sigma} must be below max_sigma = {self.max_sigma}")
        if self.suppress is not None and not self.sigma < self.suppress < self.max_sigma:
            between = f"sigma = {self.sigma} and max_sigma = {self.max_sigma}"
            raise ValueError(f"suppress = {self.suppress} must lie between {between}, or all is suppressed or nothing")
        return self


class Cloak(Defence):
    """See the module docstring."""

    Options = CloakOptions
    counter_attacks = ("decoder", "average")
    learns_noise = True
    options: CloakOptions
    constant: nn.Parameter | None

    def attach(self, model: SplitModel) -> None:
        share = self.options.sigma / self.options.max_sigma
        self.rho = nn.Parameter(torch.full(model.feature_shape, math.log(share / (1 - share))))  # sigm(ρ) = share
        constant = None if self.options.suppress is None else nn.Parameter(torch.zeros(model.feature_shape))
        self.register_parameter("constant", constant)

    def scale(self) -> Tensor:
        """s, the standard deviation of each element."""
        return self.options.max_sigma * self.rho.sigmoid()

    def transmit(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        scale = self.scale()
        sent = z + (scale * unit_noise(z, "gaussian", generator)).to(z.dtype)
        if self.constant is None or self.options.suppress is None:
            return sent
        return torch.where(scale > self.options.suppress, self.constant.to(z.dtype), sent)

    def loss(self, step: Step) -> Tensor | None:
        return -self.options.weight * 2 * self.scale().log().mean()

    def noise_power(self) -> float:
        return float(self.scale().detach().square().mean())
