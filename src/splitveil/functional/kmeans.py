"""K-means within every class at once (SPEC 1.2): k-means++ seeding and Lloyd steps, batched over the classes.

Legend: N samples, C classes, K clusters, D feature dim, R samples of the largest class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from splitveil.functional.groups import Groups, group_mean, group_rows

KEEP_BYTES = 512 * 2**20  # samples grouped by class are kept up to this size, which spares a gather per Lloyd step


@dataclass(frozen=True)
class KMeansResult:
    """Clusters of each class."""

    centroids: Tensor  # [C, K, D]
    assignment: Tensor  # [N], 0..K-1 within the sample's own class
    count: Tensor  # [C, K] members


@torch.no_grad()
def kmeans(
    x: Tensor,
    y: Tensor,
    num_classes: int,
    num_clusters: int,
    *,
    init: Tensor | None = None,
    init_power: int = 2,
    max_steps: int = 50,
    generator: torch.Generator | None = None,
) -> KMeansResult:
    """Cluster the samples of each class: x [N, D] finite, y [N] in 0..C-1, `init` [C, K, D] for a warm start.

    Without `init` the seeds are drawn as in k-means++, with probability ∝ distance^`init_power` (2 is the standard, 1
    the released code). Lloyd steps stop when assignments repeat; `assignment` is nearest to the returned centroids.
    An empty cluster keeps its centroid. A class with n <= K samples keeps `init` unchanged; without `init` its first n
    centroids are its samples and the rest repeat the first one (which wins every tie) with count 0; n = 0 gives zeros.

    >>> x, y = torch.tensor([[0.0], [0.2], [9.0], [9.2]]), torch.zeros(4, dtype=torch.long)
    >>> kmeans(x, y, 1, 2, init=torch.tensor([[[1.0], [8.0]]])).count.tolist()
    [[2, 2]]
    """
    x = x if x.dtype is torch.float64 else x.float()
    groups = group_rows(y, num_classes)
    # distances come from ‖c‖² − 2·x·c, which cancels badly far from the origin: work around the class means
    offset = group_mean(x, groups)  # [C, D]
    if init is None:
        centroids = _seed(x, groups, offset, num_clusters, init_power, generator)
    else:
        centroids = init.to(x.dtype) - offset[:, None]
    moves = (groups.count > num_clusters)[:, None, None]  # [C, 1, 1]
    parts = _points(x, groups, offset)
    previous = None
    for _ in range(max_steps):
        assignment, total, count = _assign(parts, groups, centroids)
        if previous is not None and torch.equal(assignment, previous):  # one host read per step
            break
        mean = total / count.clamp(min=1)[..., None]
        centroids = torch.where(moves & (count > 0)[..., None], mean, centroids)
        previous = assignment
    else:
        assignment, _, count = _assign(parts, groups, centroids)
    centroids = centroids + offset[:, None]
    if init is None:
        column = torch.arange(assignment.shape[1], device=x.device).expand_as(assignment)
        small = ~moves[:, 0]  # [C, 1]
        assignment = torch.where(small, column.clamp(max=num_clusters - 1), assignment)
        single = torch.arange(num_clusters, device=x.device) < groups.count[:, None]  # [C, K]
        count = torch.where(small, single.long(), count)
    else:
        centroids = torch.where(moves, centroids, init.to(x.dtype))  # bit for bit
    return KMeansResult(centroids, groups.scatter(assignment), count)


def _points(x: Tensor, groups: Groups, offset: Tensor) -> Callable[[], Iterator[tuple[slice, Tensor]]]:
    """The samples by class around the class means, in parts [C, r, D]: gathered once where they fit, else each time."""

    def gather() -> Iterator[tuple[slice, Tensor]]:
        for part in groups.chunks(x.shape[1]):
            yield part, x[groups.index[:, part]] - offset[:, None]

    if groups.index.numel() * x.shape[1] * x.element_size() > KEEP_BYTES:
        return gather
    kept = list(gather())
    return lambda: iter(kept)


def _assign(
    parts: Callable[[], Iterator[tuple[slice, Tensor]]], groups: Groups, centroids: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Nearest centroid of every sample [C, R], and the sums [C, K, D] and sizes [C, K] of the clusters, in one pass."""
    clusters = centroids.shape[1]
    assignment = torch.zeros_like(groups.index)
    total = torch.zeros_like(centroids)
    count = torch.zeros(centroids.shape[:2], dtype=torch.long, device=centroids.device)
    power = centroids.square().sum(dim=-1)[:, None]  # [C, 1, K]
    for part, points in parts():
        score = torch.baddbmm(power, points, centroids.transpose(1, 2), alpha=-2)  # [C, r, K] = d² − ‖x‖²
        nearest = score.argmin(dim=-1)
        assignment[:, part] = torch.where(groups.mask[:, part], nearest, 0)
        chosen = F.one_hot(nearest, clusters) * groups.mask[:, part, None]  # [C, r, K]
        total.baddbmm_(chosen.transpose(1, 2).to(points.dtype), points)
        count += chosen.sum(dim=1)
    return assignment, total, count


def _seed(
    x: Tensor, groups: Groups, offset: Tensor, clusters: int, init_power: int, generator: torch.Generator | None
) -> Tensor:
    """k-means++ seeds around the class means, [C, K, D]; small classes get their own samples, in order."""
    classes, rows = groups.index.shape
    if rows == 0:
        return x.new_zeros(classes, clusters, x.shape[1])
    small = groups.count <= clusters  # [C]
    weight = groups.mask.double()  # [C, R]; the first draw is uniform
    nearest = torch.full((classes, rows), torch.inf, dtype=x.dtype, device=x.device)
    device = x.device if generator is None else generator.device
    seeds = []
    for k in range(clusters):
        cumulative = weight.cumsum(dim=1)
        draw = torch.rand(classes, 1, generator=generator, device=device, dtype=torch.float64).to(x.device)
        chosen = torch.searchsorted(cumulative, draw * cumulative[:, -1:], right=True)[:, 0]  # never one of weight 0
        chosen = torch.minimum(chosen, (groups.count - 1).clamp(min=0))  # rounding must not pick a padded row
        in_order = torch.where(groups.count > k, k, 0)
        row = torch.where(small, in_order, chosen)
        seed = x[groups.index.gather(1, row[:, None])[:, 0]] - offset  # [C, D]
        seeds.append(torch.where((groups.count > 0)[:, None], seed, 0.0))
        for part in groups.chunks(x.shape[1]):
            points = x[groups.index[:, part]] - offset[:, None]
            square = (points - seeds[-1][:, None]).square().sum(dim=-1)
            nearest[:, part] = torch.minimum(nearest[:, part], square)
        weight = nearest.double().pow(init_power / 2) * groups.mask
        # all samples sit on seeds already: draw uniformly
        weight = torch.where(weight.sum(dim=1, keepdim=True) > 0, weight, groups.mask.double())
    return torch.stack(seeds, dim=1)
