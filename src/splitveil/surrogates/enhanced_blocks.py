"""The serial encoder of `enhanced` (SPEC 5.1-5.6, note N0): multi-scale gate -> complexity gate -> annealed slots ->
cross attention -> residual hierarchy -> reconstruction.

Rows are tokens: samples (`tokens=class` or `sample`) or places of feature maps (`spatial`). A sequence is what shares
its slots: a class, a sample or a map. Legend: R rows, A sequences, S slots, n past tokens, W width, H heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from splitveil.functional.assignment import class_softmax
from splitveil.functional.attention import (
    NORM_GUARD,
    PastTokens,
    gather_tokens,
    own_dropout,
    slot_logits,
    softmax_over_slots,
    split_heads,
)
from splitveil.functional.segments import Segments
from splitveil.surrogates.enhanced_gates import ComplexityGate, MultiScaleGate
from splitveil.surrogates.enhanced_options import EnhancedOptions
from splitveil.surrogates.slots import SlotStart
from splitveil.surrogates.token_rows import TokenRows


def temperature(step: int, decay: float) -> float:
    """temp(t) = max(0.1, 1 − temperature_decay·t) (SPEC 5.3).

    >>> [round(temperature(t, 0.2), 1) for t in range(7)]
    [1.0, 0.8, 0.6, 0.4, 0.2, 0.1, 0.1]
    """
    return max(0.1, 1.0 - decay * step)


class AnnealedSlots(nn.Module):
    """Slot attention with a falling temperature, and competition between slots (SPEC 5.3, 5.4)."""

    def __init__(self, width: int, start: SlotStart, options: EnhancedOptions) -> None:
        super().__init__()
        self.start, self.iterations, self.decay = start, options.num_iterations, options.temperature_decay
        self.axis, self.token_norm = options.slot_axis, options.token_norm
        self.competition, self.dropout = options.competition, options.dropout
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.norm_update, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp_in, self.mlp_out = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.rival_in, self.rival_out = nn.Linear(width, width // 4), nn.Linear(width // 4, 1)

    def forward(
        self,
        x: Tensor,
        sequences: Segments,
        past: PastTokens | None,
        mask: Tensor | None,
        classes: Tensor | None,
        generator: torch.Generator | None,
    ) -> Tensor:
        """x [R, W] -> slots [A, S, W]."""
        slots: Tensor = self.start(sequences.rows, generator, classes)
        key, value = self.key(x), self.value(x)
        past_key = past_value = None
        if past is not None:
            past_key, past_value = self.key(past.tokens), self.value(past.tokens)  # [A, n, W]
        for step in range(self.iterations):
            # A = softmax( W_q s (W_k X_g)ᵀ / (√W·temp(t)) )
            query = self.query(slots) / (x.shape[1] ** 0.5 * temperature(step, self.decay))
            logits = slot_logits(key, query, sequences)  # [R, S]
            past_logits = None if past_key is None else past_key @ query.transpose(1, 2)  # [A, n, S]
            weight, past_weight = self._attend(logits, past_logits, past, sequences, mask)
            update = gather_tokens(weight, value, sequences)  # A·W_v X_g
            if past_value is not None:
                update = update + past_weight.transpose(1, 2) @ past_value
            slots = self.norm_update(slots + update)
            hidden = own_dropout(F.gelu(self.mlp_in(slots)), self.dropout, self.training, generator)
            slots = self.norm_mlp(slots + self.mlp_out(hidden))
            if self.competition == "every_iteration":
                slots = slots * self.rivalry(slots)
        return slots if self.competition == "every_iteration" else slots * self.rivalry(slots)

    def rivalry(self, slots: Tensor) -> Tensor:
        """C_i = sigm(MLP(s_i)) in (0, 1), [A, S, 1]."""
        return torch.sigmoid(self.rival_out(torch.relu(self.rival_in(slots))))

    def _attend(
        self,
        logits: Tensor,
        past_logits: Tensor | None,
        past: PastTokens | None,
        sequences: Segments,
        mask: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Weights of tokens [R, S] and past tokens [A, n, S] (n = 0 without memory)."""
        if past is not None and past_logits is not None and self.axis == "tokens":
            past_logits = torch.where(past.filled > 0, past_logits, -torch.inf)
        if self.axis == "tokens":
            return class_softmax(logits, sequences, past_logits)
        weight = softmax_over_slots(logits, mask)
        past_weight = logits.new_zeros(sequences.rows, 0, logits.shape[1])
        if past is not None and past_logits is not None:
            past_weight = softmax_over_slots(past_logits, mask)
        if self.token_norm == "mean":
            weight, past_weight = weight + NORM_GUARD, past_weight + NORM_GUARD
        if past is not None:
            past_weight = past_weight * past.filled
        if self.token_norm == "mean":
            mass = (sequences.sum(weight) + past_weight.sum(dim=1)).clamp(min=NORM_GUARD)
            weight, past_weight = weight / sequences.take(mass), past_weight / mass[:, None]
        return weight, past_weight


class Hierarchy(nn.Module):
    """Cross attention to the slots, residual hierarchy and reconstruction (SPEC 5.5, 5.6)."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width)
        self.norm_cross, self.norm_ffn = nn.LayerNorm(width), nn.LayerNorm(width)
        self.ffn_in, self.ffn_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.rebuild_in, self.rebuild_out = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.norm_out = nn.LayerNorm(width)

    def forward(
        self, x: Tensor, slots: Tensor, sequences: Segments, mask: Tensor | None, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        """X_g [R, W], slots [A, S, W] -> X_e [R, W] and the attention of each row to each slot [R, S]."""
        query = split_heads(self.query(x)[:, None], self.heads)  # [R, H, 1, W/H]
        key = split_heads(sequences.take(self.key(slots)), self.heads)  # [R, H, S, W/H]
        value = split_heads(sequences.take(self.value(slots)), self.heads)
        logits = query @ key.transpose(-1, -2) / key.shape[-1] ** 0.5
        weight = softmax_over_slots(logits, mask)
        kept = own_dropout(weight, self.dropout, self.training, generator)
        read = self.out((kept @ value).transpose(1, 2).flatten(1))  # MH(X_g, s)
        first = self.norm_cross(x + read)  # X₁
        hidden = own_dropout(F.gelu(self.ffn_in(first)), self.dropout, self.training, generator)
        second = self.norm_ffn(first + self.ffn_out(hidden))  # X₂
        fused = F.layer_norm(x + second, (x.shape[1],))  # X_f = LN₀(X_g + X₂)
        hidden = own_dropout(F.gelu(self.rebuild_in(fused)), self.dropout, self.training, generator)
        enhanced: Tensor = self.norm_out(self.rebuild_out(hidden))  # X_e
        return enhanced, weight.mean(dim=(1, 2))


@dataclass(frozen=True)
class Encoded:
    """What the encoder makes of a batch of rows."""

    gated: Tensor  # [R, W] X_g
    enhanced: Tensor  # [R, W] X_e
    gate: Tensor | None  # 0-dim complexity gate
    slots: Tensor  # [A, S, W]
    attention: Tensor  # [R, S] what each slot gets of a row's attention, mean over heads


class SerialEncoder(nn.Module):
    """5.1 to 5.6 in their order."""

    def __init__(self, width: int, start: SlotStart, options: EnhancedOptions) -> None:
        super().__init__()
        self.scale = MultiScaleGate(width, options.scale_factors)
        self.complexity: ComplexityGate | None = None
        if options.complexity_gate == "scalar":
            self.complexity = ComplexityGate(
                width, options.gate_threshold, options.complexity_axis, options.dynamic_weight
            )
        self.slots = AnnealedSlots(width, start, options)
        self.hierarchy = Hierarchy(width, options.num_heads, options.dropout)

    def forward(
        self,
        x: Tensor,
        layout: TokenRows,
        past: PastTokens | None,
        mask: Tensor | None,
        generator: torch.Generator | None,
    ) -> Encoded:
        """x [R, W], laid out in sequences; past tokens and mask [S] as in `AnnealedSlots`."""
        gated = self.scale(x)
        gate = None if self.complexity is None else self.complexity(x, layout.classes)
        if gate is not None:
            gated = gated * gate  # X_g ← X_g·g
        slots = self.slots(gated, layout.sequences, past, mask, layout.owner, generator)
        enhanced, attention = self.hierarchy(gated, slots, layout.sequences, mask, generator)
        return Encoded(gated, enhanced, gate, slots, attention)
