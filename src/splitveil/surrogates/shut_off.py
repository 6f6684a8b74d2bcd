"""Early shut-off with moving averages of the gates (SPEC 4.6, note N4 section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from splitveil.core.options import Options


class ShutOffOptions(Options):
    """When the regulariser stays off."""

    early_shut: Literal["notes", "steps_only", "off"] = Field(
        "notes", description="steps_only drops the gate conditions, which are inverted (SPEC 9 j)"
    )
    early_shut_steps: int = Field(100, ge=0, description="training calls at the start that stay shut")
    early_hard_thresh: float = Field(0.5, description="shut when the average SNR gate is above this")
    early_gate_thresh: float = Field(0.6, description="shut when the average dimension gate is above this")
    gate_ema: float = Field(0.9, ge=0, lt=1, description="decay of the gate averages; 0 looks at the current call only")


@dataclass(frozen=True)
class Decision:
    """The decision of one call and the averages it rests on; `commit` stores them."""

    shut: Tensor  # 0-dim bool
    averages: Tensor  # [2] soft and hard gate, not bias-corrected
    updates: Tensor  # 0-dim int64


class EarlyShutOff(nn.Module):
    """State: training calls, moving averages of the gate means, number of their updates."""

    calls: Tensor
    averages: Tensor  # [2] soft, hard
    updates: Tensor

    def __init__(self, options: ShutOffOptions) -> None:
        super().__init__()
        self.options = options
        self.register_buffer("calls", torch.tensor(0))
        self.register_buffer("averages", torch.zeros(2))
        self.register_buffer("updates", torch.tensor(0))

    @torch.no_grad()
    def decide(self, soft: Tensor | None, hard: Tensor | None, usable: Tensor) -> Decision:
        """soft, hard: gate means of this call (None: no gates); usable: x was finite and some class was used."""
        options = self.options
        calls = self.calls + 1 if self.training else self.calls
        averages, updates = self.averages, self.updates
        shut = calls <= options.early_shut_steps
        if soft is not None and hard is not None:
            if self.training:
                # Ē ← ρ·Ē + (1−ρ)·current
                current = torch.stack([soft, hard]).to(averages.dtype)
                moved = options.gate_ema * averages + (1 - options.gate_ema) * current
                averages = torch.where(usable, moved, averages)
                updates = updates + usable
            if options.early_shut == "notes":
                # bias-corrected by 1 − ρ^n; before the first update the averages are 0 and stay so
                known = averages / (1 - options.gate_ema ** updates.clamp(min=1).to(averages.dtype))
                shut = shut | (known[0] > options.early_gate_thresh) | (known[1] > options.early_hard_thresh)
        if options.early_shut == "off":
            shut = torch.zeros_like(shut)
        return Decision(shut, averages, updates)

    @torch.no_grad()
    def commit(self, averages: Tensor, updates: Tensor, good: Tensor) -> None:
        """Count a training call; the averages move only when the call was good."""
        self.calls.add_(1)
        self.averages.copy_(torch.where(good, averages, self.averages))
        self.updates.copy_(torch.where(good, updates, self.updates))
