"""What defences with an adversary of their own share: the adversary's training.

The adversary sees features of the defender's own training pictures, detached, and nothing else. Its parameters need a
gradient only while it trains: in the main step they are constants, so that the task never trains it (and
DistributedDataParallel, which is set up before the first step, leaves them alone). It is a fixed function there, too:
batch normalisation takes statistics of the batch only while the adversary trains, and its running ones when the
defence's term judges it (released code).
"""

from __future__ import annotations

from typing import Self

import torch
from pydantic import Field
from torch import Tensor, nn

from splitveil.core.options import Options as AnyOptions
from splitveil.defences.base import Compiler, Defence, Step
from splitveil.functional.adam import adam, set_rate
from splitveil.functional.processes import mean_over_processes
from splitveil.models.decoders import ResidualDecoder
from splitveil.models.layers import xavier
from splitveil.models.split import SplitModel

MILESTONES = (60, 150, 240)  # of 240 epochs: from there on the rate is multiplied by GAMMA (released code)
GAMMA = 0.2


class AdversaryOptions(AnyOptions):
    """How the adversary is built and trained."""

    steps: int = Field(1, ge=1, description="steps of the adversary per step of the model")
    adversary_lr: float = Field(
        1e-3, gt=0, description="its Adam rate, times 0.2 at 60, 150, 240 of 240 epochs, scaled"
    )
    adversary_blocks: int = Field(4, ge=0, description="residual blocks of its decoder (res_normN4C64)")
    adversary_width: int = Field(64, ge=1, description="channels of its decoder")
    pretrain_epochs: int = Field(0, ge=0, description="epochs in which it trains alone, before the first")


class AdversaryDefence(Defence):
    """Base class: builds a decoder, trains it on `adversary_loss` before every step, schedules its rate."""

    options: AdversaryOptions
    adversary: nn.Module

    def __init__(self, options: AnyOptions) -> None:
        super().__init__(options)
        self.objective = self.adversary_loss  # or its compiled form

    def attach(self, model: SplitModel) -> None:
        self.adversary = self.make_adversary(model).requires_grad_(False).eval()
        xavier(self.adversary)  # as the released code begins, and as the encoder does
        self.pretrain_epochs = self.options.pretrain_epochs

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.adversary is not None:
            self.adversary.eval()  # `train_adversary` alone puts it into training mode
        return self

    def accelerate(self, compiled: Compiler) -> None:
        self.objective = compiled(self.adversary_loss)

    def make_adversary(self, model: SplitModel) -> nn.Module:
        """The network that plays the attacker."""
        assert model.image_shape is not None
        return ResidualDecoder(
            model.feature_shape,
            model.image_shape,
            blocks=self.options.adversary_blocks,
            width=self.options.adversary_width,
        )

    def watch(self, step: Step) -> Tensor:
        """The features that the adversary trains on; asked once per step, whatever `steps` says."""
        return step.z

    def adversary_loss(self, seen: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """What the adversary minimises, given the features it sees, the pictures and the labels."""
        raise TypeError(f"{type(self).__name__} does not implement adversary_loss")

    def start(self) -> None:
        self.optimiser = adam(self.adversary.parameters(), self.options.adversary_lr)

    def on_epoch(self, epoch: int, epochs: int) -> bool:
        passed = sum(epoch >= max(2, round(milestone * epochs / 240)) for milestone in MILESTONES)
        assert self.optimiser is not None
        set_rate(self.optimiser, self.options.adversary_lr * GAMMA**passed)
        return False

    def train_adversary(self, step: Step) -> None:
        assert self.optimiser is not None
        with torch.no_grad():
            seen = torch.nan_to_num(self.watch(step))  # one bad batch must not end the adversary
        self.adversary.requires_grad_(True).train()
        for _ in range(self.options.steps):
            self.optimiser.zero_grad(set_to_none=True)
            self.objective(seen, step.x, step.y).backward()
            for parameter in self.adversary.parameters():  # all processes keep the same adversary
                if parameter.grad is not None:
                    parameter.grad = mean_over_processes(parameter.grad)
            self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.adversary.requires_grad_(False).eval()
