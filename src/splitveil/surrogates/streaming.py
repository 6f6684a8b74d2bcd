"""The bank follows the batches (paper, eq. 5-6 applied cumulatively; SPEC 1.3, 1.4), without a pass over the data.

`bank.BUFFER.flatten(0, 1)` is a view [G, ...]: the buffers keep their memory, which a recorded step reads.
Legend: B batch, G = C·K components, D feature dim.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splitveil.surrogates.bank import Bank, write_where


@dataclass(frozen=True)
class BatchStep:
    """What one batch says about its components, one row per sample; all detached."""

    own: Tensor  # [B] component
    first: Tensor  # [B] = 1 for one sample of each component
    same: Tensor  # [B, B] = 1 for two samples of one component
    count: Tensor  # [B] n_j
    rho: Tensor  # [B] ρ_j
    diff: Tensor  # [B, D] = x − μ_j
    variance: Tensor  # [B, 1|D] = ρ_j·v_b + (1−ρ_j)·v̄_j


@torch.no_grad()
def follow(bank: Bank, step: BatchStep, mass: Tensor, good: Tensor, *, move_means: bool, full: bool) -> None:
    """Store the variances of eq. 6 and the `mass` [C, K] of eq. 5; a batch with `good` False leaves no trace.

    `move_means` lets the means follow too, μ_j ← μ_j + ρ_j·(mean of the batch − μ_j); variances are then taken around
    the new mean: Σ − δδᵀ with the shift δ. `full` updates the full covariances and decomposes them again.
    """
    components = torch.arange(bank.mass.numel(), device=step.own.device)
    pick = (step.own[None, :] == components[:, None]).to(step.diff.dtype) * step.first  # [G, B]: one row per component
    where = (pick.sum(dim=1) > 0) & good  # [G]
    shift = step.rho[:, None] * (step.same @ step.diff) / step.count.clamp(min=1.0)[:, None]  # [B, D]
    if not move_means:
        shift = torch.zeros_like(shift)
    variance = step.variance
    if bank.diagonal is None:
        variance = variance - shift.square().mean(dim=1, keepdim=True)
    else:
        variance = variance - shift.square()
        write_where(bank.diagonal.flatten(0, 1), pick @ variance, where)
    write_where(bank.variance.flatten(0, 1), pick @ variance.mean(dim=1), where)
    if full:
        _follow_covariance(bank, step, pick, pick @ shift, where)
    if move_means:
        write_where(bank.mean.flatten(0, 1), bank.mean.flatten(0, 1) + (pick @ shift).to(bank.mean.dtype), where)
    bank.mass.copy_(torch.where(good, mass.to(bank.mass.dtype), bank.mass))


def _follow_covariance(bank: Bank, step: BatchStep, pick: Tensor, shift: Tensor, where: Tensor) -> None:
    """Σ̄_j ← ρ_j·ΔΣ_j + (1−ρ_j)·Σ̄_j − δδᵀ, decomposed again in float64: D³ work per batch, on request only."""
    assert bank.basis is not None
    assert bank.eigen is not None
    basis, eigen = bank.basis.flatten(0, 1).double(), bank.eigen.flatten(0, 1).double()
    members = (pick @ step.same).double()  # [G, B] = 1 for members
    rho = (pick @ step.rho).double()[:, None, None]
    diff = members[..., None] * step.diff.double()  # [G, B, D]
    batch = diff.mT @ diff / members.sum(dim=1).clamp(min=1.0)[:, None, None]
    stored = (basis * eigen[:, None]) @ basis.mT
    update = rho * batch + (1.0 - rho) * stored - shift.double()[:, :, None] * shift.double()[:, None, :]
    values, vectors = torch.linalg.eigh(torch.where(where[:, None, None], update, stored))
    write_where(bank.eigen.flatten(0, 1), values.clamp(min=0.0), where)
    write_where(bank.basis.flatten(0, 1), vectors, where)
