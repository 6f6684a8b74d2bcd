"""The contract of a defence.

A defence may act in three places, and overrides only what it needs:

    install(model)            change the two halves once, when the model is built (bottleneck, sparse coding)
    transmit(z, generator)    change what is sent; active in training, evaluation, audit, export and serving alike
    loss(step)                add a term to the task loss in training
    train_adversary(step)     update networks of its own (an adversary) before the main step, with its own optimiser

Its parameters are trained with the edge half, except those inside `adversary`, which the defence trains itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from splitveil.core.options import Options as AnyOptions
from splitveil.models.split import SplitModel


@dataclass(frozen=True)
class Step:
    """What a defence may look at during one training step."""

    x: Tensor  # pictures in [0, 1], augmented
    y: Tensor  # labels
    z: Tensor  # clean feature
    sent: Tensor  # what was transmitted
    logits: Tensor | None  # None while adversaries train
    epoch: int


class Defence(nn.Module):
    """Base class: does nothing anywhere."""

    Options: ClassVar[type[AnyOptions]] = AnyOptions
    counter_attacks: ClassVar[tuple[str, ...]] = ()  # attacks that a knowing adversary would use, by registry name

    def __init__(self, options: AnyOptions) -> None:
        super().__init__()
        self.options = options
        self.adversary: nn.Module | None = None

    def install(self, model: SplitModel) -> None:
        """Change the halves of a freshly built model."""

    def transmit(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """What is sent in place of z."""
        return z

    def loss(self, step: Step) -> Tensor | None:
        """A term to add to the task loss, already weighted; None for none."""
        return None

    def train_adversary(self, step: Step) -> None:
        """Train the defence's own adversary on detached features."""

    def noise_power(self) -> float:
        """Mean variance of the noise that `transmit` adds; surrogates measure compactness against the total."""
        return 0.0
