"""Dropout of the transmitted feature.

Paper: a baseline of the CEM experiments (arXiv 2503.00383), whose attack ignores it; here the attacker sees the masks.
Formula: z̃ = m⊙z, each entry of m is 0 with probability p and 1 otherwise, drawn afresh; nothing is rescaled.
Defaults: p 0.5.
Cost: one draw per value; nothing to learn.
Bytes: unchanged as dense values; a sparse code needs (1-p)·D values and D bits.
Counter-attack: train the decoder on masked features, and collect repeated transmissions: after n only p^n is missing.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from splitveil.core.options import Options as AnyOptions
from splitveil.defences.base import Defence


class DropoutOptions(AnyOptions):
    """How much is left out."""

    p: float = Field(0.5, ge=0, lt=1, description="probability that a value is set to zero")


class Dropout(Defence):
    """See the module docstring. Active in evaluation and under attack too: `train()` and `eval()` change nothing.

    Contributes 0 to the noise power: what it does is no additive noise.
    """

    Options = DropoutOptions
    counter_attacks = ("decoder", "average")
    options: DropoutOptions

    def transmit(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        if self.options.p == 0:
            return z
        kept = torch.empty_like(z, dtype=torch.float32).uniform_(generator=generator) >= self.options.p
        return z * kept
