"""Sparse coding: the feature passes a learned dictionary and a soft threshold (SPEC 7.3).

Paper: Dibbo et al. 2024, "Improving robustness to model inversion attacks via sparse coding architectures" (ECCV); the
    single iteration is that of the CEM experiments (arXiv 2503.00383).
Formula: x ↦ Wᵀ·S_η(W·x), S_η(v) = sign(v)·max(|v| - η, 0), W [atoms, D], rows of unit length at the start only.
    Further iterations follow u ← S_η(u + (W·x - W·Wᵀ·u - a·u)) from u = 0; a has no effect on the first.
Defaults: threshold 0.01, one iteration, atoms = D, decay a = 0.05.
Cost: two products with [atoms, D], in float32; adds atoms·D parameters on the device (262,144 at D = 512).
Bytes: unchanged.
Counter-attack: decoder on the features it sends; refinement through the known dictionary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from splitveil.core.errors import InputError
from splitveil.core.options import Options as AnyOptions
from splitveil.defences.base import Defence
from splitveil.models.layers import LayeredEdge
from splitveil.models.split import SplitModel, feature_shape


class ScaOptions(AnyOptions):
    """Size of the dictionary and the threshold."""

    atoms: int | None = Field(None, ge=1, description="rows of the dictionary; as many as values when absent")
    threshold: float = Field(0.01, ge=0, description="eta, how much soft thresholding takes off")
    iterations: int = Field(1, ge=1, description="steps of the iteration; the published code takes one")
    decay: float = Field(0.05, ge=0, description="a, pulls the code to zero from the second iteration on")


class SparseCoding(nn.Module):
    """x [B, ...] ↦ Wᵀ·u, the same shape."""

    def __init__(self, dim: int, options: ScaOptions) -> None:
        super().__init__()
        self.options = options
        # N(0, 1), then rows of unit length; training is free to change the lengths
        self.dictionary = nn.Parameter(F.normalize(torch.randn(options.atoms or dim, dim), dim=1))

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_autocast_enabled(x.device.type):
            # bfloat16 has steps of 1/64 between 2 and 4: a threshold of .01 would be lost in rounding
            with torch.autocast(x.device.type, enabled=False):
                return self.reconstruct(x.float())
        return self.reconstruct(x)

    def reconstruct(self, x: Tensor) -> Tensor:
        """Wᵀ·u in the precision of x."""
        options, flat = self.options, x.flatten(1)  # [B, D]
        drive = F.linear(flat, self.dictionary)  # W·x  [B, atoms]
        code = F.softshrink(drive, options.threshold)  # u⁰ = 0, so the first step is S_η(W·x)
        for _ in range(options.iterations - 1):
            echo = F.linear(code @ self.dictionary, self.dictionary)  # W·Wᵀ·u
            code = F.softshrink(code + drive - echo - options.decay * code, options.threshold)
        return (code @ self.dictionary).view(x.shape)


class Sca(Defence):
    """See the module docstring. Sits after whatever was installed before it (the bottleneck) and before the sigmoid."""

    Options = ScaOptions
    counter_attacks = ("decoder", "refine")
    options: ScaOptions

    def install(self, model: SplitModel) -> None:
        edge = model.edge
        if not isinstance(edge, LayeredEdge) or model.image_shape is None:
            raise InputError(
                "The sca defence needs one of Splitveil's own networks.",
                "For your own module, append splitveil.defences.sca.SparseCoding to the edge half yourself.",
            )
        shape = feature_shape(edge, model.image_shape)  # the output (sigmoid) does not change it
        edge.narrow.append(SparseCoding(torch.Size(shape).numel(), self.options))
