"""BiDO: less dependence between feature and picture, more between feature and label.

Paper: Peng et al. 2022, "Bilateral dependency optimization: defending against model-inversion attacks" (KDD).
Formula: + picture_weight·d(X, Z) - label_weight·d(Z, Y) on a batch, Z the clean feature at the cut (the paper sums over
    all hidden layers; only this one leaves the device). d is HSIC = tr(K·H·L·H)/(B-1)², normalised to [0, 1] by
    √(HSIC(K, K)·HSIC(L, L)), or COCO = √λ_max(K̃·L̃)/B. Gaussian kernels for X and Z with width times the root mean
    squared distance (so that shrinking a feature changes nothing), "same class" for Y.
Defaults: measure hsic with weights 0.05 and 0.5; coco with 1 and 50 (the paper's pairs); width 1.
Cost: three [B, B] kernel matrices per step (COCO: 30 products of a matrix and a vector more); nothing to learn.
Bytes: unchanged.
Counter-attack: decoder, strong decoder (dependence on average says nothing about single pictures).
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from splitveil.core.options import Options as AnyOptions
from splitveil.defences.base import Defence, Step
from splitveil.functional.dependence import alignment, coco, gaussian_kernel

WEIGHTS = {"hsic": (0.05, 0.5), "coco": (1.0, 50.0)}  # (picture, label), the paper's pairs


class BidoOptions(AnyOptions):
    """Measure and weights."""

    measure: Literal["hsic", "coco"] = Field("hsic", description="measure of dependence")
    picture_weight: float | None = Field(None, ge=0, description="weight of d(X, Z); the measure's own when absent")
    label_weight: float | None = Field(None, ge=0, description="weight of d(Z, Y); the measure's own when absent")
    width: float = Field(1.0, gt=0, description="kernel width in units of the root mean squared distance")


class Bido(Defence):
    """See the module docstring."""

    Options = BidoOptions
    counter_attacks = ("decoder", "decoder_strong")
    options: BidoOptions

    def loss(self, step: Step) -> Tensor | None:
        options = self.options
        picture, label = WEIGHTS[options.measure]
        picture = picture if options.picture_weight is None else options.picture_weight
        label = label if options.label_weight is None else options.label_weight
        measure = alignment if options.measure == "hsic" else coco
        with torch.autocast(step.z.device.type, enabled=False):
            pictures, features = (gaussian_kernel(v, options.width) for v in (step.x, step.z))  # [B, B]
            labels = (step.y[:, None] == step.y[None, :]).to(features.dtype)
            return picture * measure(pictures, features) - label * measure(features, labels)
