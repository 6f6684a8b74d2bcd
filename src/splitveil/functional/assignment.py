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
    top = segments.max(logits)  # [A, S], subtracted for stability; any constant per class cancels
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
