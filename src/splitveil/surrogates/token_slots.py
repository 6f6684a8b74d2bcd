"""Multi-head slot attention within one feature map, and the classifier that reads it (SPEC 2.2, 2.3, note N1).

Legend: B batch, N tokens (places of the map), S slots, d channels of a token, H heads.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from splitveil.functional.attention import NORM_GUARD, own_dropout, split_heads
from splitveil.surrogates.slot_cross_options import SlotCrossOptions
from splitveil.surrogates.slots import SlotStart


class TokenSlotAttention(nn.Module):
    """S slots for every sample, from the tokens of its own feature map (SPEC 2.2)."""

    def __init__(self, width: int, start: SlotStart, options: SlotCrossOptions) -> None:
        super().__init__()
        self.start, self.heads, self.iterations = start, options.num_heads, options.num_iterations
        self.axis, self.token_norm, self.dropout = options.slot_axis, options.token_norm, options.dropout
        head_width = width // options.num_heads
        temperature = head_width**0.25 if options.slot_temp == "quarter" else 1.0
        self.scale = options.attn_logit_scale / (head_width**0.5 * temperature)
        hidden, affine = options.hidden, options.ln_affine
        self.norm_token = nn.LayerNorm(width, elementwise_affine=affine)
        self.norm_slot = nn.LayerNorm(width, elementwise_affine=affine)
        self.norm_mlp = nn.LayerNorm(width, elementwise_affine=affine)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.gru = nn.GRUCell(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))

    def forward(
        self, tokens: Tensor, classes: Tensor | None, mask: Tensor | None, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        """tokens [B, N, d] -> slots [B, S, d] and the last attention [B, H, S, N]."""
        slots: Tensor = self.start(tokens.shape[0], generator, classes)  # s⁰_ik = μ_s + exp(log σ_s) ⊙ ε_ik
        normed = self.norm_token(tokens)  # t̂ = LN(t)
        key, value = split_heads(self.key(normed), self.heads), split_heads(self.value(normed), self.heads)
        attention = tokens.new_empty(0)
        for _ in range(self.iterations):
            query = split_heads(self.query(self.norm_slot(slots)), self.heads)  # [B, H, S, d/H]
            logits = query @ key.transpose(-1, -2) * self.scale  # [B, H, S, N]
            attention = self._attend(logits, mask)
            kept = own_dropout(attention, self.dropout, self.training, generator)
            update = self.out((kept @ value).transpose(1, 2).flatten(2))  # u = A·V, heads joined by W_o
            # s ← GRU(input u, hidden s) ;  s ← s + MLP(LN(s))
            slots = self.gru(update.flatten(0, 1), slots.flatten(0, 1)).view_as(slots)
            slots = slots + self.mlp(self.norm_mlp(slots))
        return slots, attention

    def _attend(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Softmax over tokens (N1), or over slots and then a weighted mean over tokens (SPEC 9 i)."""
        if self.axis == "tokens":
            return torch.softmax(logits, dim=-1)
        attention = torch.softmax(logits if mask is None else logits + mask[:, None], dim=-2)
        if self.token_norm == "none":
            return attention
        attention = attention + NORM_GUARD
        return attention / attention.sum(dim=-1, keepdim=True)


class Classified(NamedTuple):
    """What `attention_classify_features` of N1 returns, in the order of SPEC 2.3."""

    logits: Tensor  # [B, C]
    tokens: Tensor  # [B, N, d] t⁺
    slots: Tensor  # [B, S, d]
    attention: Tensor  # [B, H, N, S]


class SlotClassifier(nn.Module):
    """Cross attention from tokens to slots and the classifier on top (SPEC 2.3)."""

    def __init__(self, width: int, num_classes: int, options: SlotCrossOptions) -> None:
        super().__init__()
        self.heads, self.dropout = options.num_heads, options.dropout
        post_norm, hidden, pool_slots = options.post_norm, options.hidden, options.pool == "slots"
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.post = (
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.LayerNorm(width)) if post_norm else None
        )
        self.hidden = nn.Linear(width, hidden) if pool_slots else None
        self.classifier = nn.Linear(hidden if pool_slots else width, num_classes)

    def forward(self, tokens: Tensor, slots: Tensor, generator: torch.Generator | None) -> Classified:
        """tokens [B, N, d], slots [B, S, d]."""
        query = split_heads(self.query(tokens), self.heads)  # [B, H, N, d/H]
        key, value = split_heads(self.key(slots), self.heads), split_heads(self.value(slots), self.heads)
        attention = torch.softmax(query @ key.transpose(-1, -2) / key.shape[-1] ** 0.5, dim=-1)  # over slots
        enhanced = tokens + self.out((attention @ value).transpose(1, 2).flatten(2))  # t⁺ = t + e
        if self.post is not None:
            enhanced = self.post(enhanced)
        # logits = W_cls · mean_n(t⁺_n) + b, or an MLP on the mean slot (prototype)
        pooled = enhanced.mean(dim=1)
        if self.hidden is not None:
            pooled = own_dropout(torch.relu(self.hidden(slots.mean(dim=1))), self.dropout, self.training, generator)
        return Classified(self.classifier(pooled), enhanced, slots, attention)
