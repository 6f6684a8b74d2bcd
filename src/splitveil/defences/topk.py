"""Top-k pruning: every picture sends only its largest values.

Paper: the `topkprune` baseline of the CEM experiments (arXiv 2503.00383), which ranks over the whole batch; here each
    picture is ranked on its own, so that one picture's mask never depends on the others.
Formula: z̃ = z where |z| is among the k = D - round(p·D) largest of its picture, 0 elsewhere.
Defaults: p 0.5.
Cost: one selection per picture; nothing to learn.
Bytes: unchanged as dense values; a sparse code needs k values and D bits.
Counter-attack: train the decoder on pruned features; the mask itself also tells which values were large.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from splitveil.core.options import Options as AnyOptions
from splitveil.defences.base import Defence


class TopKOptions(AnyOptions):
    """How much is left out."""

    p: float = Field(0.5, ge=0, lt=1, description="share of each picture's values, the smallest, that is set to zero")


class TopK(Defence):
    """See the module docstring. Deterministic; contributes 0 to the noise power."""

    Options = TopKOptions
    counter_attacks = ("decoder", "refine")
    options: TopKOptions

    def transmit(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        flat = z.flatten(1)  # [B, D]
        dim = flat.shape[1]
        keep = max(1, dim - round(self.options.p * dim))
        largest = flat.detach().abs().topk(keep, dim=1).indices  # exactly k, also among equal values
        mask = torch.zeros_like(flat).scatter_(1, largest, 1.0)
        return (flat * mask).view(z.shape)
