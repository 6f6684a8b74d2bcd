"""InfoScissors: penalise an upper bound of the information that the feature holds about the picture.

Paper: Duan et al. 2023, "PrivaScissors: enhance the privacy of collaborative inference through the lens of mutual
    information" (arXiv 2306.07973), later called InfoScissors; the bound is CLUB (Cheng et al. 2020).
Formula: + weight·CLUB(z; x) + label_weight·CLUB(z; y), CLUB = E_p(x,z) log q(x|z) - E_p(x)p(z) log q(x|z). For pictures
    q = N(g(z), variance·I) per pixel with a decoder g, and the second mean is over all pairs of the batch, so
    CLUB = mean_i ⟨g(z_i), x_i - x̄⟩/(pixels·variance). For labels q is a linear softmax classifier of z. g and the
    classifier maximise the likelihood on detached features before every step.
Defaults: weight 0.3, label_weight 0 (it works against the task: for secret labels only), variance 0.1; adversary as in
    `adversarial`.
Cost: (steps + 1) passes through the decoder per step.
Bytes: unchanged.
Counter-attack: a fresh and larger decoder: the bound holds only as far as q is the true posterior.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from splitveil.core.errors import ConfigError
from splitveil.defences.adversary import AdversaryDefence, AdversaryOptions
from splitveil.defences.base import Step
from splitveil.models.split import SplitModel


class InfoScissorsOptions(AdversaryOptions):
    """Weights of the two bounds."""

    weight: float = Field(0.3, ge=0, description="weight of the bound on the information about the picture")
    label_weight: float = Field(0.0, ge=0, description="weight of the bound on the information about the label")
    variance: float = Field(0.1, gt=0, description="variance of q(x|z) per pixel")


class InfoScissors(AdversaryDefence):
    """See the module docstring. `adversary.picture` is g, `adversary.label` the classifier."""

    Options = InfoScissorsOptions
    counter_attacks = ("decoder", "decoder_strong")
    options: InfoScissorsOptions

    def make_adversary(self, model: SplitModel) -> nn.Module:
        posteriors = nn.ModuleDict({"picture": super().make_adversary(model)})
        if self.options.label_weight > 0:
            if model.num_classes is None:
                raise ConfigError("defence.infoscissors.label_weight needs a model that knows its classes.")
            dim = torch.Size(model.feature_shape).numel()
            posteriors["label"] = nn.Sequential(nn.Flatten(), nn.Linear(dim, model.num_classes))
        return posteriors

    def adversary_loss(self, seen: Tensor, x: Tensor, y: Tensor) -> Tensor:
        posteriors = self._posteriors()
        # -log q up to constants
        loss = F.mse_loss(posteriors["picture"](seen).float(), x) / (2 * self.options.variance)
        if "label" in posteriors:
            loss = loss + F.cross_entropy(posteriors["label"](seen).float(), y)
        return loss

    def loss(self, step: Step) -> Tensor | None:
        posteriors = self._posteriors()
        guess = posteriors["picture"](step.z).float()
        total = self.options.weight * club_gaussian(guess, step.x, self.options.variance)
        if "label" in posteriors:
            total = total + self.options.label_weight * club_labels(posteriors["label"](step.z).float(), step.y)
        return total

    def _posteriors(self) -> nn.ModuleDict:
        assert isinstance(self.adversary, nn.ModuleDict)
        return self.adversary


def club_gaussian(guess: Tensor, x: Tensor, variance: float) -> Tensor:
    """CLUB per pixel for q(x|z) = N(guess(z), variance·I); guess, x [B, ...] -> 0-dim.

    Of -‖x_i - g_i‖²/2v + mean_j ‖x_j - g_i‖²/2v the squares cancel on average over i, and ⟨g_i, x_i - x̄⟩/v is left.
    """
    return (guess * (x - x.mean(dim=0))).mean() / variance


def club_labels(logits: Tensor, y: Tensor) -> Tensor:
    """mean_i (log q(y_i|z_i) - mean_j log q(y_j|z_i)); logits [B, C], y [B] -> 0-dim."""
    log_q = logits.log_softmax(dim=1)
    joint = log_q.gather(1, y[:, None]).mean()
    frequency = F.one_hot(y, logits.shape[1]).to(log_q.dtype).mean(dim=0)  # [C] of the labels in the batch
    return joint - (log_q @ frequency).mean()
