"""Expectation-maximisation for one Gaussian mixture per class (SPEC 1.2, `fit=em`), batched over the classes.

Legend: N samples, C classes, K components, D feature dim, R samples of the largest class.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splitveil.functional.groups import Groups

VARIANCE_FLOOR = 1e-6  # SPEC 1.2: without it a component shrinks onto one sample and its density diverges


@dataclass(frozen=True)
class Mixture:
    """A Gaussian mixture with diagonal covariances for every class."""

    weight: Tensor  # [C, K], sums to 1 over K where the class has samples
    mean: Tensor  # [C, K, D]
    variance: Tensor  # [C, K, D]


def log_joint(points: Tensor, mixture: Mixture) -> Tensor:
    """log π_k N(x; μ_k, diag s_k) of [C, r, D] samples, [C, r, K], without the constant −(D/2)·log 2π."""
    diff = points[:, :, None] - mixture.mean[:, None]  # [C, r, K, D]: differences, not expanded squares, stay exact
    distance = (diff.square() / mixture.variance[:, None]).sum(dim=-1)
    return mixture.weight.log()[:, None] - 0.5 * (distance + mixture.variance.log().sum(dim=-1)[:, None])


@torch.no_grad()
def em(x: Tensor, groups: Groups, start: Mixture, steps: int = 30) -> Mixture:
    """Refine `start` (usually K-means) by `steps` iterations; `groups` are the classes of x [N, D].

    E: γ_ik = π_k N(x_i; μ_k, s_k) / Σ_l …;  M: π_k = mean γ_ik, μ_k = Σ γ x / Σ γ, s_k = max(Σ γ (x−μ_k)² / Σ γ, 1e-6).
    A component without mass keeps its mean and variance; a class without samples stays as it is.
    """
    mixture = Mixture(start.weight, start.mean, start.variance.clamp(min=VARIANCE_FLOOR))
    for _ in range(steps):
        mixture = _step(x, groups, mixture)
    return mixture


def _step(x: Tensor, groups: Groups, old: Mixture) -> Mixture:
    mass = torch.zeros_like(old.weight)
    first, second = torch.zeros_like(old.mean), torch.zeros_like(old.mean)
    for part in groups.chunks(x.shape[1] * old.weight.shape[1]):
        points = x[groups.index[:, part]]  # [C, r, D]
        gamma = log_joint(points, old).softmax(dim=-1)  # [C, r, K]
        gamma = torch.where(groups.mask[:, part, None], gamma, 0.0)
        diff = points[:, :, None] - old.mean[:, None]  # around the old mean: the shift is small
        mass += gamma.sum(dim=1)
        first += torch.einsum("crk,crkd->ckd", gamma, diff)
        second += torch.einsum("crk,crkd->ckd", gamma, diff.square())
    alive = (mass > 0)[..., None]
    safe = torch.where(mass > 0, mass, 1.0)[..., None]
    shift = first / safe
    variance = (second / safe - shift.square()).clamp(min=VARIANCE_FLOOR)
    weight = torch.where((groups.count > 0)[:, None], mass / groups.count.clamp(min=1)[:, None], old.weight)
    return Mixture(weight, torch.where(alive, old.mean + shift, old.mean), torch.where(alive, variance, old.variance))
