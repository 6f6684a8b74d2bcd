"""Slot attention over the samples of a class, and gated cross attention back to them (SPEC 4.1, 4.2, note N4).

Legend: B batch, A rows (classes), S slots, n past samples per class, W width, H heads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from splitveil.functional.attention import (
    NORM_GUARD,
    PastTokens,
    gather_tokens,
    slot_logits,
    softmax_over_slots,
    split_heads,
)
from splitveil.functional.segments import Segments
from splitveil.surrogates.slot_gated_options import SlotGatedOptions
from splitveil.surrogates.slots import SlotStart


class ClassSlotAttention(nn.Module):
    """S slots shared by the samples of each class (SPEC 4.1, eq. 3-7)."""

    def __init__(self, width: int, start: SlotStart, options: SlotGatedOptions) -> None:
        super().__init__()
        self.start, self.iterations, self.token_norm = start, options.num_iterations, options.token_norm
        # q is divided by √W, and by τ_s = W^{1/4} on top (SPEC 9 h)
        temperature = width**0.25 if options.slot_temp == "quarter" else 1.0
        self.scale = options.attn_logit_scale / (width**0.5 * temperature)
        self.norm_in, self.norm_slot, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.gru = nn.GRUCell(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(
        self,
        tokens: Tensor,
        segments: Segments,
        past: PastTokens | None,
        mask: Tensor | None,
        generator: torch.Generator | None,
    ) -> Tensor:
        """tokens [B, W] -> slots [A, S, W]; mask [S] is added to the logits over slots."""
        slots: Tensor = self.start(segments.rows, generator, segments.owner())  # [A, S, W]
        normed = self.norm_in(tokens)
        key, value = self.key(normed), self.value(normed)  # k_n, v_n [B, W]
        if past is not None:
            past_normed = self.norm_in(past.tokens)
            past_key, past_value = self.key(past_normed), self.value(past_normed)  # [A, n, W]
        for _ in range(self.iterations):
            query = self.query(self.norm_slot(slots)) * self.scale  # q_k [A, S, W]
            # a_nk = softmax_k( k_n·q_k / τ_s )
            attention = softmax_over_slots(slot_logits(key, query, segments), mask)  # [B, S]
            past_attention = None
            if past is not None:
                past_attention = softmax_over_slots(past_key @ query.transpose(1, 2), mask)  # [A, n, S]
            if self.token_norm == "mean":
                attention = attention + NORM_GUARD
                past_attention = None if past_attention is None else past_attention + NORM_GUARD
            if past is not None and past_attention is not None:
                past_attention = past_attention * past.filled
            # u_k = Σ_n a_nk v_n
            update = gather_tokens(attention, value, segments)  # [A, S, W]
            mass = segments.sum(attention)  # [A, S]
            if past_attention is not None:
                update = update + past_attention.transpose(1, 2) @ past_value
                mass = mass + past_attention.sum(dim=1)
            if self.token_norm == "mean":
                update = update / mass.clamp(min=NORM_GUARD)[..., None]
            # s_k ← GRU(u_k, s_k) ;  s_k ← s_k + MLP(LN_mlp(s_k))
            slots = self.gru(update.flatten(0, 1), slots.flatten(0, 1)).view_as(slots)
            slots = slots + self.mlp(self.norm_mlp(slots))
        return slots


class GatedCrossAttention(nn.Module):
    """Every sample reads the slots of its class through a gated residual (SPEC 4.2, eq. 8-12)."""

    def __init__(self, width: int, heads: int, *, qkv_proj: bool, alpha_xattn: float, alpha_ffn: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm_query, self.norm_slot, self.norm_ffn = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.query = nn.Linear(width, width, bias=False) if qkv_proj else nn.Identity()
        self.key = nn.Linear(width, width, bias=False) if qkv_proj else nn.Identity()
        self.value = nn.Linear(width, width, bias=False) if qkv_proj else nn.Identity()
        self.out = nn.Linear(width, width)
        self.ffn = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.alpha_xattn = nn.Parameter(torch.tensor(float(alpha_xattn)))
        self.alpha_ffn = nn.Parameter(torch.tensor(float(alpha_ffn)))

    def forward(self, h: Tensor, slots: Tensor, mask: Tensor | None) -> Tensor:
        """h [R, M, W] reads slots [R, S, W] -> h̃ [R, M, W]."""
        normed = self.norm_slot(slots)
        query = split_heads(self.query(self.norm_query(h)), self.heads)  # [R, H, M, W/H]
        key, value = (split_heads(part(normed), self.heads) for part in (self.key, self.value))  # [R, H, S, W/H]
        # o = W_o·concat_heads( softmax_k(q·K / √d_h) V )
        attention = softmax_over_slots(query @ key.transpose(-1, -2) / key.shape[-1] ** 0.5, mask)
        read = self.out((attention @ value).transpose(1, 2).flatten(2))
        # h'_m = h_m + tanh(alpha_xattn)·o ;  h̃_m = h'_m + tanh(alpha_ffn)·FFN(LN_ff(h'_m))
        h = h + torch.tanh(self.alpha_xattn) * read
        enhanced: Tensor = h + torch.tanh(self.alpha_ffn) * self.ffn(self.norm_ffn(h))
        return enhanced
