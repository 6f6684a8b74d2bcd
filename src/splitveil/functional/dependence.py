"""Measures of dependence between two batches of vectors: distance correlation, HSIC, COCO.

Rows are samples; what is compared is how pairs of samples lie to each other in one space and in the other.
"""

from __future__ import annotations

import torch
from torch import Tensor

from splitveil.core.errors import InputError
from splitveil.functional.classes import safe_divide, safe_root


def squared_distances(x: Tensor) -> Tensor:
    """‖x_i - x_j‖² for x [B, D], as [B, B] with an exact zero diagonal, in at least float32.

    The mean is subtracted first: distances do not change, and less cancels in ‖x_i‖² + ‖x_j‖² - 2·x_i·x_j.
    """
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    x = x - x.detach().mean(dim=0)  # a shift of all rows has no gradient
    with torch.autocast(x.device.type, enabled=False):
        gram = x @ x.T
    norm = gram.diagonal()
    square = (norm[:, None] + norm[None, :] - 2 * gram).clamp_min(0.0)  # rounding may leave it below zero
    return square * (1 - torch.eye(len(x), device=x.device, dtype=x.dtype))


def distances(x: Tensor) -> Tensor:
    """‖x_i - x_j‖ (not squared) for x [B, D] as [B, B]; equal rows have distance 0 and gradient 0."""
    square = squared_distances(x)
    # under the rounding of the Gram matrix nothing is known, and the slope of the root there would be huge
    known = square > 4 * torch.finfo(square.dtype).eps * square.detach().max()
    return torch.where(known, torch.where(known, square, 1.0).sqrt(), 0.0)


def double_centred(a: Tensor) -> Tensor:
    """A_ij = a_ij - row mean - column mean + mean, for a symmetric a [B, B]."""
    row = a.mean(dim=1)
    return a - row[:, None] - row[None, :] + row.mean()


def u_centred(a: Tensor) -> Tensor:
    """The bias-free centring of Székely and Rizzo 2014; needs B >= 4; zero diagonal."""
    size = len(a)
    row = a.sum(dim=1) / (size - 2)
    centred = a - row[:, None] - row[None, :] + a.sum() / ((size - 1) * (size - 2))
    return centred * (1 - torch.eye(size, device=a.device, dtype=a.dtype))


def distance_correlation(x: Tensor, z: Tensor, *, unbiased: bool = False) -> Tensor:
    """Distance correlation of Székely, Rizzo and Bakirov 2007, from *unsquared* Euclidean distances.

        dCor = √( ⟨A, B⟩ / √(⟨A, A⟩·⟨B, B⟩) ), A and B the double-centred distance matrices

    Squared distances would see linear dependence only. Shapes: x [B, ...], z [B, ...] -> 0-dim in [0, 1]; 0 with zero
    gradient when either is constant. With `unbiased` the bias-corrected dCor² (no root; 0 on average for independent
    variables, may be negative; B >= 4), since the plain estimate grows with the dimension at fixed B.

    >>> x = torch.tensor([[-1.0], [0.0], [1.0]])
    >>> round(float(distance_correlation(x, x**2)), 4)
    0.5623
    """
    if unbiased and len(x) < 4:
        raise InputError(
            f"A batch of {len(x)} has no bias-corrected distance correlation.", "Use batches of 4 or more."
        )
    centre = u_centred if unbiased else double_centred
    a, b = centre(distances(x.flatten(1))), centre(distances(z.flatten(1)))
    product = _ratio((a * b).sum(), (a * a).sum() * (b * b).sum())
    if unbiased:
        return product
    return safe_root(product)


def gaussian_kernel(x: Tensor, width: float = 1.0) -> Tensor:
    """k_ij = exp(-‖x_i - x_j‖² / (2·h²)), h² = width²·mean squared distance (a constant for gradients)."""
    square = squared_distances(x.flatten(1))
    scale = square.detach().mean()
    return torch.exp(-square / (2 * width**2 * torch.where(scale > 0, scale, 1.0)))


def hsic(kernel: Tensor, other: Tensor) -> Tensor:
    """Hilbert-Schmidt independence criterion tr(K·H·L·H)/(B-1)² of two kernel matrices (Gretton et al. 2005a)."""
    size = len(kernel)
    return (double_centred(kernel) * other).sum() / (size - 1) ** 2


def alignment(kernel: Tensor, other: Tensor) -> Tensor:
    """HSIC(K, L)/√(HSIC(K, K)·HSIC(L, L)), in [0, 1]; 0 when either is constant."""
    return _ratio(hsic(kernel, other), hsic(kernel, kernel) * hsic(other, other))


def coco(kernel: Tensor, other: Tensor, iterations: int = 30) -> Tensor:
    """Constrained covariance (1/B)·√λ_max(K̃·L̃) of two kernel matrices (Gretton et al. 2005b); K̃ = H·K·H.

    λ_max by power iteration without gradient: a fixed amount of work that can be recorded on a GPU. At the
    eigenvector v the quotient vᵀL̃K̃L̃v / vᵀL̃v has both the value and the gradient of λ_max.
    """
    kernel, other = double_centred(kernel), double_centred(other)
    with torch.no_grad():
        product = kernel @ other
        # start from all columns' sum weighted by index: not orthogonal to the leading vector except by accident
        vector = product @ torch.linspace(-1.0, 1.0, len(kernel), device=kernel.device, dtype=kernel.dtype)
        for _ in range(iterations):
            vector = product @ vector
            length = vector.norm()
            vector = vector / torch.where(length > 0, length, 1.0)
    left = other @ vector
    largest = safe_divide(left @ kernel @ left, vector @ left)
    return safe_root(largest) / len(kernel)


def _ratio(numerator: Tensor, square: Tensor) -> Tensor:
    """numerator/√square; 0 without gradient where square is 0."""
    return safe_divide(numerator, safe_root(square))
