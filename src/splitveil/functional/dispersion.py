"""Dispersion: weighted means and variances of classes around their centres, past samples included.

Legend: B batch, A rows (classes), S centres per class, n past samples per class, D feature dim.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from splitveil.functional.classes import safe_divide
from splitveil.functional.segments import Segments


@dataclass(frozen=True)
class Moments:
    """Weighted moments of each centre."""

    mass: Tensor  # [A, S] Σ_m a_mk
    mean: Tensor  # [A, S, D]
    var: Tensor  # [A, S, D] biased, around the mean, not floored


@dataclass(frozen=True)
class PastMoments:
    """Moments of the past samples of each class (SPEC 0.5): constants, gradient flows through the batch only."""

    mass: Tensor  # [A, S]
    mean: Tensor  # [A, S, D]
    scatter: Tensor  # [A, S, D] Σ_m a_mk (x_m − mean)²


@torch.no_grad()
def past_moments(past: Tensor, weight: Tensor) -> PastMoments:
    """Moments of past samples [A, n, D] under weights [A, n, S]; empty places have weight 0.

    One centre: two passes. Several: Σ a (x−c)² − mass·(mean−c)² around the class mean c, since a second pass per
    centre would need [A, n, S, D] numbers; the difference is clamped at 0 (SPEC 0.4).
    """
    weight_t = weight.transpose(1, 2)  # [A, S, n]
    mass = weight.sum(dim=1)  # [A, S]
    total = weight.sum(dim=2)  # [A, n]
    weight_sum = total.sum(dim=1)[:, None, None]
    centre = (total[:, None] @ past) / torch.where(weight_sum > 0, weight_sum, 1.0)  # [A, 1, D]
    centred = past - centre  # [A, n, D]
    if weight.shape[2] == 1:
        return PastMoments(mass, centre, weight_t @ centred.square_())
    offset = (weight_t @ centred) / torch.where(mass > 0, mass, 1.0)[..., None]  # [A, S, D]
    scatter = (weight_t @ centred.square_() - mass[..., None] * offset.square()).clamp_(min=0.0)
    return PastMoments(mass, centre + offset, scatter)


def weighted_moments(
    x: Tensor, weight: Tensor, segments: Segments, past: PastMoments | None = None, *, guard: float = 0.0
) -> Moments:
    """Moments of x [B, D] under weights [B, S], per class.

    mass = Σ_m a_mk ;  mean = Σ_m a_mk x_m / (mass+guard) ;  var = Σ_m a_mk (x_m − mean)² / (mass+guard)

    Two passes, around the plain class mean, so that a large common offset costs no precision. The sums of batch and
    past are joined exactly: Σ a (x−μ)² over the past is scatter + mass·(mean−μ)². No mass: mean = class mean, var = 0.
    """
    anchor = (segments.sum(x.detach()) / segments.count.clamp(min=1.0)[:, None])[:, None]  # [A, 1, D]
    centred = (x - segments.take(anchor[:, 0]))[:, None]  # [B, 1, D]
    mass = segments.sum(weight)  # [A, S]
    first = segments.sum(weight[..., None] * centred)  # [A, S, D]
    if past is not None:
        mass = mass + past.mass
        first = first + past.mass[..., None] * (past.mean - anchor)
    if guard:
        first = first - guard * anchor  # the guard pulls the mean towards 0, not towards the anchor
    # without mass the sums are 0, so dividing by 1 gives 0
    denominator = torch.where(mass + guard > 0, mass + guard, 1.0)[..., None]
    offset = first / denominator  # mean − anchor
    second = segments.sum(weight[..., None] * (centred - segments.take(offset)).square())
    if past is not None:
        second = second + past.scatter + past.mass[..., None] * (past.mean - anchor - offset).square()
    return Moments(mass, anchor + offset, second / denominator)


def mixture_nll(x: Tensor, mean: Tensor, var: Tensor, log_weight: Tensor, segments: Segments, used: Tensor) -> Tensor:
    """−mean_i log Σ_k w_k N(x_i; μ_k, diag var_k) / D over the samples of used classes (SPEC 9 c, 9.1).

    x [B, D], mean [A, S, D], var [A, S, D] or [A, S, 1], log_weight [A, S], used [A] bool. Divided by D, like
    every Gaussian form, so that its gradient does not grow with the feature. 0 when no class is used.
    """
    dim = x.shape[1]
    log_det = (var.log().mean(dim=-1) + math.log(2 * math.pi)) * dim  # [A, S]
    constant = log_weight - 0.5 * log_det  # [A, S]
    square = ((x[:, None] - segments.take(mean)).square() / segments.take(var)).sum(dim=-1)  # [B, S]
    log_density = torch.logsumexp(segments.take(constant) - 0.5 * square, dim=1)  # [B]
    counted = torch.where(used, segments.count, 0.0).sum()
    total = torch.where(used, segments.sum(log_density), 0.0).sum()
    return -safe_divide(total, counted) / dim


def class_mse(x: Tensor, centre: Tensor, segments: Segments) -> Tensor:
    """MSE_c = (1/(M_c·D)) Σ_m ‖x_m − centre_c‖² over the batch (SPEC 0.2): x [B, D], centre [A, D] -> [A]."""
    square = (x - segments.take(centre)).square().mean(dim=1)
    return safe_divide(segments.sum(square), segments.count)
