"""Label smoothing, positive or negative.

Paper: Struppek et al. 2024, "Be careful what you smooth for: label smoothing can be a privacy shield but also a
    catalyst for model inversion attacks" (ICLR).
Formula: targets (1 - alpha)·onehot(y) + alpha/C in the task loss, i.e. + alpha·(mean_c CE(·, c) - CE(·, y)) beside the
    CE that is there already. Negative alpha pushes the other classes down and protects against class-level inversion.
Defaults: alpha 0.1 (the paper's negative value: -0.05).
Cost: one mean over the logits; nothing to learn.
Bytes: unchanged.
Counter-attack: decoder; it acts on what the classifier says about a class, hardly on what a feature tells of a picture.
"""

from __future__ import annotations

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from splitveil.core.options import Options as AnyOptions
from splitveil.defences.base import Defence, Step


class LabelSmoothingOptions(AnyOptions):
    """How much."""

    alpha: float = Field(0.1, gt=-1, lt=1, description="share of the target spread over all classes; may be negative")


class LabelSmoothing(Defence):
    """See the module docstring."""

    Options = LabelSmoothingOptions
    counter_attacks = ("decoder",)
    options: LabelSmoothingOptions

    def loss(self, step: Step) -> Tensor | None:
        if self.options.alpha == 0 or step.logits is None:
            return None
        logits = step.logits.float()
        uniform = -logits.log_softmax(dim=1).mean()  # mean over pictures and classes of CE(·, c)
        return self.options.alpha * (uniform - F.cross_entropy(logits, step.y))
