"""Assignment: how much each sample belongs to each centre of its class.

Legend: B batch, A rows (classes), S centres per class, n past samples per class, D feature dim.
"""

from __future__ import annotations

import torch
from torch import Tensor

from splitveil.functional.segments import Segments

COSINE_GUARD = 1e-8  # added to both squared norms: a zero vector has cosine 0 with everything and a bounded gradient


def class_softmax(logits: Tensor, segments: Segments, past_logits: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Softmax over all samples of a class: logits [B, S], past_logits [A, n, S] (-inf for empty places).

    Returns the weights [B, S] of the batch and [A, n, S] of the past; per class and centre they sum to 1 together.
    """
    if past_logits is None:
        past_logits = logits.new_empty(segments.rows, 0, logits.shape[1])
    top = segments.max(logits.detach())  # [A, S], subtracted for stability; any constant per class cancels
    if past_logits.shape[1]:
        top = torch.maximum(top, past_logits.detach().amax(dim=1))
    top = torch.where(torch.isfinite(top), top, 0.0)  # a class without samples
    # clamped for samples that count nowhere and read a foreign maximum: Inf in the forward is NaN in the backward
    raised = (logits - segments.take(top)).clamp(max=0.0).exp()  # [B, S]
    past = (past_logits - top[:, None]).exp()  # [A, n, S]
    total = segments.sum(raised) + past.sum(dim=1)  # [A, S]
    total = torch.where(total > 0, total, 1.0)
    return raised / segments.take(total), past / total[:, None]


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """cos(a, b) over the last axis of a [..., M, D] against b [..., S, D]: [..., M, S]."""
    norm_a = (a.square().sum(dim=-1) + COSINE_GUARD).sqrt()  # [..., M]
    norm_b = (b.square().sum(dim=-1) + COSINE_GUARD).sqrt()  # [..., S]
    return (a @ b.transpose(-1, -2)) / (norm_a[..., :, None] * norm_b[..., None, :])


def slot_weights(mass: Tensor, count: Tensor, slot_power: Tensor | float) -> Tensor:
    """log w̃_k, w̃_k = softmax_k(γ_s·log(w_k/M)) (SPEC 4.4): mass [A, S] > 0, count [A]; exact for every γ_s."""
    return torch.log_softmax(slot_power * (mass / count.clamp(min=1.0)[:, None]).log(), dim=-1)


def assign_to_centroids(
    distance: Tensor,
    segments: Segments,
    past_distance: Tensor | None = None,
    filled: Tensor | None = None,
    *,
    temperature: float | None,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Weights a_ik from squared distances δ_ik to the centroids of the own class (SPEC 2.4, step 2).

    temperature None: a_ik = 1 for the nearest, without gradient through the choice. Otherwise
    a_ik = softmax_k( −δ_ik / (T_a·sg[mean of δ over the class and k]) ).

    distance [B, S], past_distance [A, n, S] with `filled` [A, n, 1] bool, mask [S] (0 or -inf for a pruned slot).
    """
    if mask is not None:
        distance = distance - mask
        past_distance = None if past_distance is None else past_distance - mask
    if temperature is None:
        if past_distance is None or filled is None:
            return _nearest(distance), None
        return _nearest(distance), _nearest(past_distance) * filled
    finite = torch.where(torch.isfinite(distance), distance, 0.0).detach()
    total, count = segments.sum(finite.mean(dim=1)), segments.count  # [A]
    if past_distance is not None and filled is not None:
        known = torch.where(filled & torch.isfinite(past_distance), past_distance, 0.0)
        total = total + known.mean(dim=2).sum(dim=1)
        count = count + filled.sum(dim=(1, 2))
    # every sample on every centroid: any scale gives equal weights
    scale = temperature * torch.where(total > 0, total / count.clamp(min=1.0), 1.0)  # [A]
    weight = torch.softmax(-distance / segments.take(scale)[:, None], dim=1)
    if past_distance is None or filled is None:
        return weight, None
    return weight, torch.softmax(-past_distance / scale[:, None, None], dim=2) * filled


def one_hot(index: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    """1 at `index` [...] of the new last axis of length `size`, 0 elsewhere (without the value check of PyTorch's)."""
    return (index[..., None] == torch.arange(size, device=index.device)).to(dtype)


def _nearest(distance: Tensor) -> Tensor:
    return one_hot(distance.argmin(dim=-1), distance.shape[-1], distance.dtype)


@torch.no_grad()
def past_square_distances(past: Tensor, centroid: Tensor) -> Tensor:
    """‖p − c‖² [A, n, S] between past samples [A, n, V] and centroids [A, S, V] of the same class.

    Expanded as ‖p‖² − 2·p·c + ‖c‖², since the differences would need [A, n, S, V] numbers; taken around the mean
    centroid, where the terms are small, and clamped at 0.
    """
    centre = centroid.mean(dim=1, keepdim=True)
    past, centroid = past - centre, centroid - centre
    cross = past @ centroid.transpose(1, 2)
    return (past.square().sum(-1)[..., None] - 2 * cross + centroid.square().sum(-1)[:, None]).clamp_(min=0.0)


def match_slots(slots: Tensor, segments: Segments) -> Tensor:
    """Reorder the slots [B, S, d] of each sample to fit the mean slots of its class: Hungarian on cosine (SPEC 9 g).

    The matching runs on the host, sample by sample: it synchronises, and cannot be captured or compiled.
    """
    from scipy.optimize import linear_sum_assignment  # half a second to import, and only this option needs it

    mean = segments.sum(slots.detach()) / segments.count.clamp(min=1.0)[:, None, None]  # [A, S, d]
    gain = cosine(segments.take(mean), slots.detach()).cpu().numpy()  # [B, S of the class, S of the sample]
    order = torch.stack([torch.from_numpy(linear_sum_assignment(one, maximize=True)[1]) for one in gain])
    return slots.gather(1, order.to(slots.device)[..., None].expand_as(slots))


@torch.no_grad()
def combined_distance(x: Tensor, centroid: Tensor, cos_weight: float) -> Tensor:
    """d = d_E + w·d_cos between x [..., V] and its centroids [..., K, V] -> [..., K] (SPEC 5.7).

    d_E = ‖x−c‖² ;  d_cos = 1 − x·c/(‖x‖‖c‖ + 1e-8). The note subtracts: w < 0 (SPEC 9 b).
    """
    euclid = (x[..., None, :] - centroid).square().sum(dim=-1)
    inner = (centroid @ x[..., None])[..., 0]
    norms = x.norm(dim=-1, keepdim=True) * centroid.norm(dim=-1)
    return euclid + cos_weight * (1.0 - inner / (norms + 1e-8))
