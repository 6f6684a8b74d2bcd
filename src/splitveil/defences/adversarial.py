"""Adversarial representation learning: the encoder resists a decoder that trains beside it.

Paper: Li et al. 2022, "ResSFL: a resistance transfer framework for defending model inversion attack in split federated
    learning" (CVPR); `gan_adv` of the CEM experiments (arXiv 2503.00383).
Formula: before every step a decoder A (res_normN4C64) takes `steps` Adam steps that maximise SSIM(A(z), x) (or minimise
    the MSE) on detached z, which the encoder makes in evaluation mode. The encoder adds weight·max(SSIM(A(z), x) -
    threshold, 0), or weight·max(threshold - MSE, 0), with z clean and of this training step, and A fixed: its batch
    normalisation uses running statistics there.
Defaults: weight 0.3, criterion ssim with threshold 0.5 (mse: 0.02), steps 1, Adam 1e-3 times 0.2 at 60, 150 and 240 of
    240 epochs: all as released. No pre-training (released: 30 epochs on 9,000 *test* pictures, before a first epoch
    that trains the adversary alone, too).
Cost: (steps + 1) passes through the decoder and one more forward pass through the edge per step; 415,091 parameters
    that never leave the defender (D = 512).
Bytes: unchanged.
Counter-attack: a fresh and larger decoder, trained after the defence has stopped moving.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from splitveil.defences.adversary import AdversaryDefence, AdversaryOptions
from splitveil.defences.base import Step
from splitveil.functional.ssim import ssim
from splitveil.models.split import SplitModel, evaluating

THRESHOLDS = {"ssim": 0.5, "mse": 0.02}


class AdversarialOptions(AdversaryOptions):
    """The encoder's term. Adversary and pre-training see the defender's training pictures only."""

    weight: float = Field(0.3, ge=0, description="weight of the encoder's term")
    criterion: Literal["ssim", "mse"] = Field("ssim", description="how reconstructions are judged")
    threshold: float | None = Field(None, description="good enough, no more pressure; 0.5 for ssim, 0.02 for mse")
    sees: Literal["eval", "clean", "sent"] = Field(
        "eval", description="adversary trains on z of the edge in evaluation mode, on this step's z, or on what is sent"
    )


class Adversarial(AdversaryDefence):
    """See the module docstring."""

    Options = AdversarialOptions
    counter_attacks: ClassVar[tuple[str, ...]] = ("decoder", "decoder_strong")
    options: AdversarialOptions

    @property
    def threshold(self) -> float:
        """The recipe's, or the criterion's own."""
        given = self.options.threshold
        return THRESHOLDS[self.options.criterion] if given is None else given

    def attach(self, model: SplitModel) -> None:
        super().attach(model)
        self._edge = [model.edge]  # a plain list: it is not ours, and not part of our state

    def watch(self, step: Step) -> Tensor:
        if self.options.sees == "eval":  # what an attacker will get once the training is over
            with evaluating(self._edge[0]):
                seen: Tensor = self._edge[0](step.x)
                return seen
        return step.sent if self.options.sees == "sent" else step.z

    def adversary_loss(self, seen: Tensor, x: Tensor, y: Tensor) -> Tensor:
        pictures = self.adversary(seen).float()
        if self.options.criterion == "ssim":
            return 1 - ssim(pictures, x).mean()
        return F.mse_loss(pictures, x)

    def loss(self, step: Step) -> Tensor | None:
        if self.options.weight == 0:
            return None
        pictures = self.adversary(step.z).float()
        if self.options.criterion == "ssim":
            excess = ssim(pictures, step.x).mean() - self.threshold
        else:
            excess = self.threshold - F.mse_loss(pictures, step.x)
        return self.options.weight * F.relu(excess)
