"""Reduction of per-class losses to one number, with the edge cases of SPEC 0.3."""

from __future__ import annotations

import torch
from torch import Tensor

from splitveil.functional.classes import safe_divide


def reduce_classes(
    per_class_loss: Tensor, weight: Tensor, used: Tensor, *, normalise: bool, gate: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Weighted sum over classes.

    loss = Σ_c w_c·L_c over used classes with a finite L_c; `normalise` divides by the Σ w_c of exactly those classes
    (so equal weights give the mean over present classes). `gate` g_c multiplies each term after that normalisation.

    Args: `per_class_loss`, `weight`, `used` (bool), `gate`, each [C].
    Returns: the loss, the contributions [C] that sum to it, and which classes counted [C] (bool).
    No class counted: the loss is exactly 0 and still connected to the graph.
    """
    counted = used & torch.isfinite(per_class_loss)  # [C]
    weight = torch.where(counted, weight, 0.0)
    if normalise:
        weight = safe_divide(weight, weight.sum())
    if gate is not None:
        weight = weight * gate
    contributions = weight * torch.where(counted, per_class_loss, 0.0)
    return contributions.sum(), contributions, counted
