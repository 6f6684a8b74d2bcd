"""Estimates of H(Z|Y) in nats, to plot a surrogate against: for analysis, not for training.

Each takes features z [N, ...] and labels y [N], averages over the classes with p_c = N_c/N, and returns a float.
Classes too small for the method are left out and the rest reweighted; none left gives nan. `noise` = σ² adds the
variance of the channel, so that the two parametric ones describe z̃ = z + σε; for `knn` add the noise to the samples.

>>> import torch
>>> z, y = torch.randn(2000, 2, generator=torch.Generator().manual_seed(0)), torch.zeros(2000, dtype=torch.long)
>>> round(gaussian(z, y), 1), round(knn(z, y), 1)  # the truth is log(2πe) = 2.84
(2.8, 2.8)
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from splitveil.core.errors import InputError
from splitveil.core.seeding import generator
from splitveil.functional.entropy import gaussian_entropy, knn_entropy, mixture_entropy_bounds
from splitveil.functional.kmeans import kmeans

__all__ = ["gaussian", "knn", "mixture"]


def knn(z: Tensor, y: Tensor, *, k: int = 3) -> float:
    """Kozachenko-Leonenko: no assumption about the law; noisy, and biased in many dimensions."""
    return _over_classes(z, y, k + 1, lambda x: knn_entropy(x, k))


def gaussian(z: Tensor, y: Tensor, *, noise: float = 0.0) -> float:
    """One Gaussian per class: with population covariances an upper bound, exact for Gaussian classes."""
    return _over_classes(z, y, 2, lambda x: gaussian_entropy(_covariance(x) + _noise(x, noise)))


def mixture(z: Tensor, y: Tensor, *, num_clusters: int = 3, noise: float = 0.0) -> float:
    """K-means clusters per class: Σ_k π_k·(½·log det(2πe·(Σ_k + σ²I)) − log π_k), an upper bound (Theorem 2)."""

    def bound(x: Tensor) -> Tensor:
        labels = torch.zeros(len(x), dtype=torch.long, device=x.device)
        result = kmeans(x, labels, 1, num_clusters, generator=generator(0, "estimators", "mixture"))
        rows = [x[result.assignment == k] for k in range(num_clusters)]
        rows = [cluster for cluster in rows if len(cluster)]
        covariance = torch.stack([_covariance(cluster) + _noise(x, noise) for cluster in rows])
        weight = torch.tensor([len(cluster) / len(x) for cluster in rows], dtype=x.dtype, device=x.device)
        return mixture_entropy_bounds(weight, covariance)[1]

    return _over_classes(z, y, num_clusters + 1, bound)


def _over_classes(z: Tensor, y: Tensor, minimum: int, estimate: Callable[[Tensor], Tensor]) -> float:
    if y.ndim != 1 or len(z) != len(y):
        raise InputError(f"Features {tuple(z.shape)} and labels {tuple(y.shape)} do not belong together.")
    x = z.detach().flatten(1).double()
    if not torch.isfinite(x).all():
        raise InputError("The features contain NaN or infinity.")
    total, weight = 0.0, 0
    for label in y.unique().tolist():
        rows = x[y == label]
        if len(rows) >= minimum:
            total += len(rows) * float(estimate(rows))
            weight += len(rows)
    return total / weight if weight else float("nan")


def _covariance(x: Tensor) -> Tensor:
    diff = x - x.mean(dim=0)
    return diff.T @ diff / len(x)


def _noise(x: Tensor, noise: float) -> Tensor:
    return noise * torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
