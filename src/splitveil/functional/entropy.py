"""Differential entropy, in nats, of samples and of Gaussian mixtures.

Legend: N samples, D feature dim, K components.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

CHUNK_ROWS = 1024  # rows of the distance matrix held at once


def gaussian_entropy(covariance: Tensor) -> Tensor:
    """½·log det(2πe·Σ) of covariances [..., D, D]; −inf for a singular one."""
    sign, logdet = torch.linalg.slogdet(covariance)
    logdet = torch.where(sign > 0, logdet, -torch.inf)  # rounding may leave a tiny negative determinant
    return 0.5 * (covariance.shape[-1] * math.log(2 * math.pi * math.e) + logdet)


def knn_entropy(x: Tensor, k: int = 3) -> Tensor:
    """Kozachenko-Leonenko estimate from k-th nearest neighbours, for x [N, D] with N > k (Kozachenko, Leonenko 1987).

    H = ψ(N) − ψ(k) + log V_D + (D/N)·Σ_i log ε_i, with ε_i the distance to the k-th neighbour and V_D the volume of
    the unit ball. Asymptotically unbiased; in high dimensions it needs very many samples. −inf when more than k samples
    coincide, as for any law with an atom.
    """
    samples, dim = x.shape
    if samples <= k:
        raise ValueError(f"{k} nearest neighbours need more than {k} samples, not {samples}")
    exact = x.double()
    # the sample itself is its own 0-th neighbour; differences, not expanded squares, or near neighbours are lost
    radius = torch.cat(
        [
            torch.cdist(rows, exact, compute_mode="donot_use_mm_for_euclid_dist").kthvalue(k + 1, dim=1).values
            for rows in exact.split(CHUNK_ROWS)
        ]
    )
    log_ball = 0.5 * dim * math.log(math.pi) - math.lgamma(0.5 * dim + 1)
    psi = torch.digamma(torch.tensor([samples, k], dtype=torch.float64, device=x.device))
    return psi[0] - psi[1] + log_ball + dim * radius.log().mean()


def mixture_entropy_bounds(weight: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Lower and upper bound of the entropy of a mixture: Σ π_k h_k ≤ H ≤ Σ π_k·(h_k − log π_k).

    `weight` [K] sums to 1, `covariance` [K, D, D], h_k = ½·log det(2πe·Σ_k). The lower bound (knowing the component
    cannot raise entropy) holds for Gaussian components; the upper one (the component is worth −Σ π log π nats at most,
    the direction of the paper's Theorem 2) for components of any shape with these covariances. The means do not enter.
    """
    entropy = gaussian_entropy(covariance)
    alive = weight > 0
    inside = torch.where(alive, weight * entropy, 0.0).sum()
    return inside, inside - torch.special.xlogy(weight, weight).sum()
