"""Attention maps on request (SPEC 6.8, N3 §7): α, r and the gates of one fixed batch, stored after each active epoch.

RUN/gates/epoch-0007.safetensors holds, as far as the surrogate has them (B batch, C classes, S slots, D feature dim):

    labels [B]   attn α [B]   resp r [B, S]   slot_mass [C, S]   class_used [C]   shut
    gate_class g_c [C]   gate_soft g_d [C, S, D]   gate_hard [C, S, D]   and their means over used classes
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from splitveil.core.files import save_atomic
from splitveil.functional.segments import class_segments
from splitveil.models.split import evaluating
from splitveil.surrogates.base import Surrogate
from splitveil.surrogates.gates import GatedPenalty, Penalty

MAPS = ("attn", "resp", "slot_mass", "complexity_gate", "class_used", "shut")


def store_gates(run: Path, epoch: int, surrogate: Surrogate, z: Tensor, y: Tensor) -> Path:
    """Run the surrogate once in eval mode on clean features z [B, ...] and write its maps; changes no state."""
    path = run / "gates" / f"epoch-{epoch:04d}.safetensors"
    maps = {name: value.contiguous().cpu() for name, value in gate_maps(surrogate, z, y, epoch).items()}
    save_atomic(path, lambda temporary: save_file(maps, temporary, metadata={"epoch": str(epoch)}))
    return path


@torch.no_grad()
def gate_maps(surrogate: Surrogate, z: Tensor, y: Tensor, epoch: int | None = None) -> dict[str, Tensor]:
    """What the surrogate pays attention to in one batch."""
    full: dict[str, Tensor] = {}

    def keep(module: nn.Module, args: Any, penalty: Penalty) -> None:
        # diagnostics hold only the means of these two: D numbers per slot would burden every training step
        if penalty.soft is not None and penalty.hard is not None:
            count = torch.bincount(y, minlength=surrogate.num_classes)
            rows = class_segments(y, y >= 0, count, limit=len(penalty.soft))  # as the surrogate chose its rows
            full["gate_soft"] = rows.to_class(penalty.soft, surrogate.num_classes)
            full["gate_hard"] = rows.to_class(penalty.hard, surrogate.num_classes)

    hooks = [m.register_forward_hook(keep) for m in surrogate.modules() if isinstance(m, GatedPenalty)]
    try:
        with evaluating(surrogate):
            diagnostics = surrogate(z, y, epoch=epoch).diagnostics
    finally:
        for hook in hooks:
            hook.remove()
    named = {name: value for name, value in diagnostics.items() if name in MAPS or name.startswith("gate_")}
    return {"labels": y, **named, **full}
