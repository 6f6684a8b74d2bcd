"""Steps of attention that the surrogates with slots share.

Legend: B batch, A rows (classes), S slots, M tokens, n past samples per class, W width, H heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splitveil.functional.segments import Segments

NORM_GUARD = 1e-8  # SPEC 4.1, token_norm=mean: a slot nobody looks at must not divide by 0


@dataclass(frozen=True)
class PastTokens:
    """Past samples as tokens."""

    tokens: Tensor  # [A, n, W]
    filled: Tensor  # [A, n, 1], 1 where there is a sample


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[B, M, W] -> [B, H, M, W/H]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def softmax_over_slots(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Weights over the last axis of logits [..., S]; mask [S] is -inf for slots that are not in use (None: all are)."""
    return torch.softmax(logits if mask is None else logits + mask, dim=-1)


def own_dropout(x: Tensor, rate: float, training: bool, generator: torch.Generator | None) -> Tensor:
    """Dropout that draws from the surrogate's own generator, so that it never shifts the training's stream."""
    if not training or rate == 0.0:
        return x
    kept = torch.rand(x.shape, generator=generator, dtype=x.dtype, device=x.device) >= rate
    return x * kept / (1 - rate)


def slot_logits(key: Tensor, query: Tensor, segments: Segments) -> Tensor:
    """Dot products of each sample with the slots of its own class: key [B, W], query [A, S, W] -> [B, S]."""
    return (segments.take(query) @ key[:, :, None])[..., 0]


def gather_tokens(weight: Tensor, value: Tensor, segments: Segments) -> Tensor:
    """Σ_n a_nk v_n over the samples of each class: weight [B, S], value [B, W] -> [A, S, W]."""
    return segments.sum(weight[..., None] * value[:, None])
