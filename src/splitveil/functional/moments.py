"""Second moments of clusters around given centres, over a whole data set (SPEC 1.2, step 3).

Legend: N samples, C classes, K clusters, G = C·K components, D feature dim.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from splitveil.functional.gaussian import gram_logdet, log_pivots
from splitveil.functional.groups import CHUNK_ELEMENTS, Groups


def cluster_variance(x: Tensor, groups: Groups, assignment: Tensor, centroids: Tensor) -> Tensor:
    """s̄_ck = mean over members of (x−μ_ck)² per dimension, [C, K, D]; 0 for an empty cluster.

    `groups` are the classes, `assignment` [N] the cluster within the class, `centroids` [C, K, D].
    """
    classes, clusters, dim = centroids.shape
    total = torch.zeros_like(centroids)
    count = centroids.new_zeros(classes, clusters)
    for part in groups.chunks(dim):
        rows = groups.index[:, part]
        chosen = F.one_hot(assignment[rows], clusters).to(x.dtype) * groups.mask[:, part, None]  # [C, r, K]
        square = (x[rows] - chosen @ centroids).square()  # [C, r, D]
        total.baddbmm_(chosen.transpose(1, 2), square)
        count += chosen.sum(dim=1)
    return total / count.clamp(min=1.0)[..., None]


def cluster_covariance(x: Tensor, groups: Groups, centers: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Σ̄_j = (1/n_j) Σ (x−μ_j)(x−μ_j)ᵀ in slices of components: (slice, [g, D, D]); `groups` are the components.

    A few components at a time, because all of them at once may not fit beside the features.
    """
    dim = x.shape[1]
    step = max(1, CHUNK_ELEMENTS // (dim * dim))
    for some in _slices(centers.shape[0], step):
        total = x.new_zeros(some.stop - some.start, dim, dim)
        part = groups.select(some)
        for columns in part.chunks(dim):
            diff = _centred(x, part, columns, centers[some])
            total.baddbmm_(diff.transpose(1, 2), diff)
        yield some, total / part.count.clamp(min=1)[:, None, None]


def cluster_logdet(x: Tensor, groups: Groups, centers: Tensor, noise: float) -> Tensor:
    """log det(Σ_j + noise·I) of every component, [G]; Σ_j divides by n−1 as the released monitor does (SPEC 1.2)."""
    rows, dim = groups.index.shape[1], x.shape[1]
    result = x.new_zeros(centers.shape[0])  # log det(I + Σ_j/noise)
    divisor = (groups.count - 1).clamp(min=1).to(x.dtype) * noise  # [G]
    if rows < dim:
        for some in _slices(centers.shape[0], max(1, CHUNK_ELEMENTS // max(rows * dim, 1))):
            diff = _centred(x, groups.select(some), slice(0, rows), centers[some])  # [g, R, D]
            result[some] = gram_logdet(diff / divisor[some, None, None].sqrt())
    else:
        for some, covariance in cluster_covariance(x, groups, centers):
            scale = (groups.count[some] / divisor[some])[:, None, None]
            pivots, _ = log_pivots(torch.eye(dim, dtype=torch.float64, device=x.device) + scale * covariance.double())
            result[some] = pivots.sum(dim=-1).to(x.dtype)
    return result + dim * math.log(noise)


def _centred(x: Tensor, part: Groups, columns: slice, centers: Tensor) -> Tensor:
    return (x[part.index[:, columns]] - centers[:, None]) * part.mask[:, columns, None]


def _slices(total: int, step: int) -> Iterator[slice]:
    for first in range(0, total, step):
        yield slice(first, min(first + step, total))
