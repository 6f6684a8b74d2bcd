"""Shredder: a set of learned noise tensors; one of them is drawn for every transmission.

Paper: Mireshghallah et al. 2020, "Shredder: learning noise distributions to protect inference privacy" (ASPLOS).
Formula: z̃ = z + n_k, k drawn uniformly from M learned tensors. The first share `start` of the epochs trains the network
    without noise; then the network is frozen and the tensors minimise CE - weight·(1/M)·Σ_k Σ_d |n_kd| (amplitude), or
    CE + weight/mean_d var_k(n_kd) (variance). Batch-norm statistics still follow what arrives. A surrogate beside it
    shapes the edge until it is frozen and does nothing afterwards; the log says in which epochs it acts.
Defaults: members 8, weight 0.01, reward amplitude, sigma 0.1 (Laplace at the start), start 0.5, freeze true.
Cost: one gather per transmission; M·D parameters.
Bytes: unchanged.
Counter-attack: average repeated transmissions (there are only M answers: the attack finds the set out by trial, and a
    few transmissions of a picture tell which members to subtract); decoder on noisy features.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.distributed as dist
from pydantic import Field
from torch import Tensor, nn

from splitveil.core.errors import ConfigError
from splitveil.core.options import Options as AnyOptions
from splitveil.defences.base import Defence, Step
from splitveil.defences.noise import unit_noise
from splitveil.models.split import SplitModel


class ShredderOptions(AnyOptions):
    """The set of noise tensors and when it learns."""

    members: int = Field(8, ge=1, description="M, how many noise tensors there are")
    weight: float = Field(0.01, ge=0, description="weight of the reward for noise")
    reward: Literal["amplitude", "variance"] = Field("amplitude", description="what about the noise is rewarded")
    sigma: float = Field(0.1, gt=0, description="standard deviation of the tensors at the start")
    start: float = Field(0.5, ge=0, lt=1, description="share of the epochs that trains the network without noise")
    freeze: bool = Field(True, description="keep the network fixed once the noise learns")


class Shredder(Defence):
    """See the module docstring.

    Noise power: the variance over the set, since a part that all members share is a shift, not noise.
    """

    Options = ShredderOptions
    counter_attacks = ("average", "decoder")
    learns_noise = True
    options: ShredderOptions
    active: Tensor

    def __init__(self, options: AnyOptions) -> None:
        super().__init__(options)
        # 0 until the noise starts: part of the state, so that every later use sends what training ended with
        self.register_buffer("active", torch.tensor(float(self.options.start == 0)))

    def attach(self, model: SplitModel) -> None:
        like = torch.empty(self.options.members, *model.feature_shape)
        self.noise = nn.Parameter(self.options.sigma * unit_noise(like, "laplace", None))
        # without a gradient until it starts: nothing may move it meanwhile
        self.noise.requires_grad_(self.options.start == 0)
        self._halves = [model.edge, model.cloud]  # a plain list: they are not ours, and not part of our state

    def _first(self, epochs: int) -> int:
        """The first epoch in which the noise learns."""
        return 1 if self.options.start == 0 else max(1, round(self.options.start * epochs)) + 1

    def frozen_from(self, epochs: int) -> int | None:
        return self._first(epochs) if self.options.freeze else None

    def on_epoch(self, epoch: int, epochs: int) -> bool:
        started = epoch >= self._first(epochs)
        if started and (self.options.start > 0 or self.options.freeze):
            _single_process()
        changed = started != self.noise.requires_grad
        self.active.fill_(float(started))
        self.noise.requires_grad_(started)
        if started and self.options.freeze:
            for half in self._halves:
                changed = changed or any(p.requires_grad for p in half.parameters())
                half.requires_grad_(False)
        return changed

    def transmit(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        drawn = torch.randint(self.options.members, z.shape[:1], generator=generator, device=z.device)
        return z + (self.active * self.noise.index_select(0, drawn)).to(z.dtype)

    def loss(self, step: Step) -> Tensor | None:
        if self.options.reward == "amplitude":
            reward = -self.noise.abs().flatten(1).sum(dim=1).mean()
        else:
            # at least the rounding of a float, or one equal set would stop everything
            reward = 1 / self.noise.var(dim=0, unbiased=False).mean().clamp_min(1e-12)
        return self.options.weight * self.active * reward

    def noise_power(self) -> float:
        return float(self.active * self.noise.detach().var(dim=0, unbiased=False).mean())


def _single_process() -> None:
    """What trains must not change once several processes have agreed on it."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        raise ConfigError(
            "defence.shredder trains network and noise in turn, which needs a single process.",
            "Set defence.shredder.start=0 and defence.shredder.freeze=false to train them together.",
        )
