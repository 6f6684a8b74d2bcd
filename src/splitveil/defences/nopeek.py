"""NoPeek: less distance correlation between picture and feature.

Paper: Vepakomma et al. 2020, "NoPeek: information leakage reduction to share activations in distributed deep learning".
Formula: + weight·dCor(x, z), the distance correlation of the pictures (normalised as the network reads them) and the
    clean features of a batch, from unsquared Euclidean distances (squared ones would see linear dependence only). The
    estimate of a batch is biased upwards; estimator unbiased penalises the bias-corrected dCor² instead.
Defaults: weight 0.3, estimator biased (as published).
Cost: two [B, B] distance matrices per step; nothing to learn.
Bytes: unchanged.
Counter-attack: decoder, strong decoder (correlation says nothing about what a non-linear decoder can do).
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor, nn

from splitveil.core.options import Options as AnyOptions
from splitveil.defences.base import Defence, Step
from splitveil.functional.dependence import distance_correlation
from splitveil.models.layers import LayeredEdge
from splitveil.models.split import SplitModel


class NoPeekOptions(AnyOptions):
    """Weight of the penalty."""

    weight: float = Field(0.3, ge=0, description="weight of the distance correlation in the task loss")
    estimator: Literal["biased", "unbiased"] = Field(
        "biased", description="as published, or bias-corrected and squared"
    )


class NoPeek(Defence):
    """See the module docstring."""

    Options = NoPeekOptions
    counter_attacks = ("decoder", "decoder_strong")
    options: NoPeekOptions

    def attach(self, model: SplitModel) -> None:
        # a plain list: it belongs to the edge; halves of the user's own take pictures as they are
        self._normalise = [model.edge.normalise if isinstance(model.edge, LayeredEdge) else nn.Identity()]

    def loss(self, step: Step) -> Tensor | None:
        if self.options.weight == 0:
            return None
        x = self._normalise[0](step.x)
        return self.options.weight * distance_correlation(x, step.z, unbiased=self.options.estimator == "unbiased")
