"""Steps of attention between the samples of a class (ragged, as segments) and the slots of that class.

Legend: B batch, A rows (classes), S slots, n past samples per class, W width.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from splitveil.functional.segments import Segments


@dataclass(frozen=True)
class PastTokens:
    """Past samples as tokens."""

    tokens: Tensor  # [A, n, W]
    filled: Tensor  # [A, n, 1], 1 where there is a sample


def slot_logits(key: Tensor, query: Tensor, segments: Segments) -> Tensor:
    """Dot products of each sample with the slots of its own class: key [B, W], query [A, S, W] -> [B, S]."""
    return (segments.take(query) @ key[:, :, None])[..., 0]


def gather_tokens(weight: Tensor, value: Tensor, segments: Segments) -> Tensor:
    """Σ_n a_nk v_n over the samples of each class: weight [B, S], value [B, W] -> [A, S, W]."""
    return segments.sum(weight[..., None] * value[:, None])
