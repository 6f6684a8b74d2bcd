"""The bank: Gaussian components of every class, fitted once per epoch and kept in buffers (SPEC 1.1, 1.2).

Shapes are fixed from the start and every update is written in place, so that a checkpoint restores the bank and a
captured CUDA graph sees it. Legend: N samples, C classes, K clusters, D feature dim.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from splitveil.core.errors import ConfigError, InputError
from splitveil.core.seeding import generator
from splitveil.functional.em import Mixture, em
from splitveil.functional.forms import Covariance
from splitveil.functional.groups import group_rows
from splitveil.functional.kmeans import KMeansResult, kmeans
from splitveil.functional.moments import cluster_covariance, cluster_variance

MAX_FULL_GIB = 16  # a larger bank of full covariances is a mistake, not a wish


@dataclass(frozen=True)
class FitOptions:
    """How components are fitted (SPEC 1.2)."""

    fit: Literal["kmeans", "em"] = "kmeans"
    init_power: int = 2
    max_steps: int = 50
    em_steps: int = 30


class Bank(nn.Module):
    """μ, mass n_ck and variances of C·K components; π_ck = n_ck/Σ_k n_ck, global π_j = n_j/N.

    Buffers: `mean` [C, K, D], `mass` [C, K], `size` (N), `fitted` [C], `variance` [C, K] (scalar v̄), `diagonal`
    [C, K, D] (s̄) for covariance diag and full, `eigen` [C, K, D] and `basis` [C, K, D, D] (Σ̄ = QΛQᵀ) for full.
    """

    mean: Tensor
    mass: Tensor
    size: Tensor
    fitted: Tensor
    variance: Tensor
    diagonal: Tensor | None
    eigen: Tensor | None
    basis: Tensor | None

    def __init__(self, num_classes: int, num_clusters: int, dim: int, covariance: Covariance = "scalar") -> None:
        super().__init__()
        self.num_classes, self.num_clusters, self.dim = num_classes, num_clusters, dim
        gib = num_classes * num_clusters * dim * dim * 4 / 2**30
        if covariance == "full" and gib > MAX_FULL_GIB:
            raise ConfigError(
                f"Full covariances of {num_classes * num_clusters} components in {dim} dimensions need {gib:.0f} GiB.",
                "Use form = 'gauss_diag' or a narrower bottleneck.",
            )
        shape = (num_classes, num_clusters)
        self.register_buffer("mean", torch.zeros(*shape, dim))
        self.register_buffer("mass", torch.zeros(shape))
        self.register_buffer("size", torch.zeros(()))
        self.register_buffer("fitted", torch.zeros(num_classes, dtype=torch.bool))
        self.register_buffer("variance", torch.zeros(shape))
        self.register_buffer("diagonal", torch.zeros(*shape, dim) if covariance != "scalar" else None)
        self.register_buffer("eigen", torch.zeros(*shape, dim) if covariance == "full" else None)
        self.register_buffer("basis", torch.zeros(*shape, dim, dim) if covariance == "full" else None)
        self.ready = False  # the host's copy of "some class is fitted": a look at the buffer would synchronise
        self._warned = False
        self.register_load_state_dict_post_hook(Bank._loaded)

    @staticmethod
    def _loaded(module: Any, _: Any) -> None:
        module.ready = bool(module.fitted.any())

    def warn_unfitted(self, surrogate: str, stacklevel: int) -> None:
        """Say once that the loss is 0 because nothing is fitted yet (SPEC 0.3); compiled code says nothing."""
        if self.ready or self._warned or torch.compiler.is_compiling():
            return
        self._warned = True
        message = f"{surrogate} has no bank yet: its loss is 0 until refresh() is called."
        warnings.warn(message, RuntimeWarning, stacklevel=stacklevel + 1)

    @torch.no_grad()
    def fit(self, x: Tensor, y: Tensor, options: FitOptions) -> Tensor:
        """Fit the components of every class to x [N, D], y [N]; later calls start from the old means.

        A class with n <= K samples stays as it is; on its first fit its samples become components. Returns the
        assignment [N] of the samples to clusters.
        """
        if x.dtype is torch.float64 and self.mean.dtype is not torch.float64:
            self.double()  # float64 input stays float64 throughout (SPEC 0.4)
        x = x.to(self.mean.dtype) if self.mean.dtype is torch.float64 else x.float()
        classes = group_rows(y, self.num_classes)
        result = self._cluster(x, y, classes.count, options)
        mean, mass = result.centroids, result.count.to(x.dtype)
        diagonal = cluster_variance(x, classes, result.assignment, mean)  # [C, K, D]
        if options.fit == "em":
            total = classes.count[:, None].to(x.dtype)
            mixture = em(x, classes, Mixture(mass / total.clamp(min=1), mean, diagonal), options.em_steps)
            large = classes.count > self.num_clusters  # a class of K samples or fewer has one component per sample
            mean = torch.where(large[:, None, None], mixture.mean, mean)
            diagonal = torch.where(large[:, None, None], mixture.variance, diagonal)
            mass = torch.where(large[:, None], mixture.weight * total, mass)
        changed = (classes.count > self.num_clusters) | (~self.fitted & (classes.count > 0))  # [C]
        alive = changed[:, None] & (mass > 0)  # an empty cluster keeps its statistics as well as its centroid
        write_where(self.mean, mean, changed)
        write_where(self.mass, mass, changed)
        write_where(self.variance, diagonal.mean(dim=-1), alive)
        if self.diagonal is not None:
            write_where(self.diagonal, diagonal, alive)
        if self.basis is not None:
            self._decompose(x, y, result.assignment, alive)
        self.fitted |= classes.count > 0
        self.size.copy_(self.mass.sum())
        self.ready = True
        return result.assignment

    def _cluster(self, x: Tensor, y: Tensor, count: Tensor, options: FitOptions) -> KMeansResult:
        shape = (self.num_classes, self.num_clusters)
        fresh = ~self.fitted & (count > 0)  # [C]
        init, seeds = self.mean, None
        if bool(fresh.any()):
            # the draws are the bank's own and the same in every run: training noise never shifts because of them
            own = generator(0, "bank", "seeds")
            seeds = kmeans(x, y, *shape, init_power=options.init_power, max_steps=0, generator=own)
            init = torch.where(fresh[:, None, None], seeds.centroids, init)
        result = kmeans(x, y, *shape, init=init, max_steps=options.max_steps)
        if seeds is None:
            return result
        small = fresh & (count <= self.num_clusters)  # first fit: one component per sample, whatever the ties
        return KMeansResult(
            result.centroids,
            torch.where(small[y], seeds.assignment, result.assignment),
            torch.where(small[:, None], seeds.count, result.count),
        )

    def _decompose(self, x: Tensor, y: Tensor, assignment: Tensor, alive: Tensor) -> None:
        """Σ̄ = QΛQᵀ of every component, in float64, a few components at a time (SPEC 1.4)."""
        assert self.basis is not None
        assert self.eigen is not None
        members = group_rows(y * self.num_clusters + assignment, self.num_classes * self.num_clusters)
        basis, eigen, alive = self.basis.flatten(0, 1), self.eigen.flatten(0, 1), alive.flatten()
        for some, covariance in cluster_covariance(x, members, self.mean.flatten(0, 1)):
            values, vectors = torch.linalg.eigh(covariance.double())
            write_where(basis[some], vectors, alive[some])
            write_where(eigen[some], values.clamp(min=0.0), alive[some])  # rounding gives −1e-17


def write_where(buffer: Tensor, value: Tensor, where: Tensor) -> None:
    """Overwrite, in place, the entries of `buffer` for which `where` (its leading axes, bool) holds."""
    mask = where.reshape(where.shape + (1,) * (buffer.ndim - where.ndim))
    buffer.copy_(torch.where(mask, value.to(buffer.dtype), buffer))


def class_weights(mass: Tensor) -> Tensor:
    """π_ck = n_ck/Σ_k n_ck, [C, K]; zeros for a class without samples."""
    return mass / mass.sum(dim=1, keepdim=True).clamp(min=torch.finfo(mass.dtype).tiny)  # 0/tiny = 0


def pairs(batches: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches as they are; one pair in the place of many, whose features would be taken for batches, is refused."""
    for batch in batches:
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise InputError(
                f"refresh takes batches, each a pair of features and labels, not a {type(batch).__name__}.",
                "Give a list or a generator of (z, y); of a single batch: refresh([(z, y)]).",
            )
        yield batch[0], batch[1]


def collect(
    batches: Iterable[tuple[Tensor, Tensor]], check: Callable[[Tensor, Tensor], None], num_classes: int, like: Tensor
) -> tuple[Tensor, Tensor]:
    """All features and labels of `batches` as x [N, D], y [N], on the device of `like`; unusable samples are left out.

    Peak memory is that of the features once, not twice: batches are released while they are copied. Samples with
    non-finite features or labels out of range are dropped with a warning.
    """
    features: list[Tensor] = []
    labels: list[Tensor] = []
    for z, y in pairs(batches):
        check(z, y)
        flat = z.detach().flatten(1).to(like.device)
        features.append(flat if flat.dtype is torch.float64 else flat.float())
        labels.append(y.to(like.device, torch.long))
    if not features:
        return like.new_zeros(0, like.shape[-1]), torch.zeros(0, dtype=torch.long, device=like.device)
    y = torch.cat(labels)
    x = features[0].new_empty(y.shape[0], features[0].shape[1])
    usable = (y >= 0) & (y < num_classes)
    first = 0
    features.reverse()
    while features:
        part = features.pop()
        rows = slice(first, first + part.shape[0])
        x[rows] = part
        usable[rows] &= torch.isfinite(part).all(dim=1)
        first = rows.stop
    dropped = int((~usable).sum())
    if dropped:
        warnings.warn(f"{dropped} of {len(y)} features are not usable for epoch statistics.", RuntimeWarning, 2)
        x, y = x[usable], y[usable]
    return x, y
