"""Log-determinants of covariances plus noise, always through the smaller matrix and always in float64.

All of them rest on det(I_D + AᵀA) = det(I_n + AAᵀ) for A [n, D], and on the Cholesky factor of the smaller side.

Legend: B batch, n members, D feature dim.
"""

from __future__ import annotations

import torch
from torch import Tensor


def log_pivots(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """2·log diag(L) of the Cholesky factor, [..., n], and whether the factorisation failed, [...].

    The sum over the last axis is the log-determinant. For a matrix that is block diagonal up to a permutation, the sum
    over the rows of one block is the log-determinant of that block. Failed matrices give zeros and zero gradients;
    nothing is read back to the host.
    """
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    _, info = torch.linalg.cholesky_ex(matrix.detach())
    failed = info > 0
    # the factorisation that carries the gradient never sees the bad matrix: NaN·0 would survive a mask put after it
    factor, _ = torch.linalg.cholesky_ex(torch.where(failed[..., None, None], eye, matrix))
    return 2.0 * factor.diagonal(dim1=-2, dim2=-1).log(), failed


def gram_logdet(points: Tensor) -> Tensor:
    """log det(I_D + PᵀP) for P [..., n, D], from the n×n or the D×D Gram matrix, whichever is smaller; float64 inside.

    >>> round(gram_logdet(torch.eye(3)).item(), 6) == round(3 * 0.69314718, 6)
    True
    """
    exact = points.double()
    small = exact @ exact.mT if points.shape[-2] < points.shape[-1] else exact.mT @ exact
    matrix = small + torch.eye(small.shape[-1], dtype=small.dtype, device=small.device)
    pivots, failed = log_pivots(matrix)
    # rounding beyond 1e16: Hadamard's upper bound Σ log diag instead
    return torch.where(failed, matrix.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1), pivots.sum(dim=-1)).to(points.dtype)


def component_logdet(
    diff: Tensor, basis: Tensor, eigen: Tensor, rho: Tensor, count: Tensor, same: Tensor, noise: float
) -> tuple[Tensor, Tensor]:
    """log det(I + Σ_j/noise), Σ_j = ρ·ΔΣ_j + (1−ρ)·Σ̄_j, of each sample's component without D³ work (SPEC 1.4).

    With Σ̄ = QΛQᵀ, a = (1−ρ)Λ + noise and Y = Qᵀ(x−μ) over the n members:
    log det(Σ_j + noise·I) = Σ log a + log det(I_n + (ρ/n)·Yᵀ diag(1/a) Y). The I_n of all components together form one
    block diagonal [B, B] matrix, so one Cholesky factorisation serves all of them.

    Args: `diff` [B, D] = x−μ, `basis` [B, D, D] = Q and `eigen` [B, D] = Λ ≥ 0 of the own component, `rho`, `count` = n
        [B], `same` [B, B] = 1 where two samples share a component.
    Returns: the log-determinant of the own component [B] (float64), and a 0-dim flag that the factorisation failed.
    """
    projected = torch.bmm(diff[:, None].to(basis.dtype), basis)[:, 0].double()  # [B, D] = Y
    rho, count, same = rho.double(), count.double(), same.double()
    ratio = (1.0 - rho)[:, None] * eigen.double() / noise  # [B, D] = a/noise − 1
    scaled = projected * (rho / (count.clamp(min=1.0) * noise)).sqrt()[:, None] / (1.0 + ratio).sqrt()
    eye = torch.eye(same.shape[0], dtype=same.dtype, device=same.device)
    pivots, failed = log_pivots(eye + (scaled @ scaled.mT) * same)  # [B]
    return torch.log1p(ratio).sum(dim=1) + same @ pivots, failed
