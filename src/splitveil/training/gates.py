"""Gate lines (SPEC 6.8): what the gates did in the first five calls and in every 200th, printed at the end of an epoch.

[CEM-GATE][OK] epoch=3 step=200 classes=10 gate_d=0.512 hard_gate=0.431 base=2.113 rob_loss=0.4021
[CEM-GATE][SHUTOFF] epoch=5 step=400 classes=10 gate_d=0.498 hard_gate=0.960 base=2.205

And the surrogate's learnable scalars (SPEC 4.5), which metrics.jsonl keeps for every epoch.
"""

from __future__ import annotations

import logging
import math

import torch
from torch import Tensor

from splitveil.surrogates.base import Surrogate
from splitveil.surrogates.gates import Scalars
from splitveil.training.step import TrainStep

log = logging.getLogger("splitveil.training")

FIRST, EVERY = 5, 200
FIELDS = {"classes": "classes", "gate_d": "gate_soft_mean", "hard_gate": "gate_hard_mean", "base": "base_mean"}


class GateLog:
    """Collects numbers on the device and reads them once per epoch."""

    def __init__(self) -> None:
        self.calls = 0
        self.waiting: list[tuple[int, tuple[str, ...], Tensor]] = []

    def look(self, step: TrainStep) -> None:
        """Remember the current step's gates where the step is due."""
        if not step.acting or "gate_hard_mean" not in step.names:
            return
        self.calls += 1
        if self.calls <= FIRST or self.calls % EVERY == 0:
            self.waiting.append((self.calls, step.names, step.newest.clone()))

    def write(self, epoch: int) -> None:
        """Print what was collected."""
        for call, names, tensor in self.waiting:
            values = dict(zip(names, tensor.tolist(), strict=True))
            shut = values.get("shut", 0.0) > 0
            parts = [f"{label}={values[name]:.4g}" for label, name in FIELDS.items() if name in values]
            if not shut:
                parts.append(f"rob_loss={values['rob_loss']:.4g}")
            log.info("[CEM-GATE][%s] epoch=%d step=%d %s", "SHUTOFF" if shut else "OK", epoch, call, " ".join(parts))
        self.waiting.clear()


@torch.no_grad()
def learned_scalars(surrogate: Surrogate) -> dict[str, float]:
    """scalar_NAME for every single number that the surrogate learns, as it enters the formulas."""
    found: dict[str, Tensor] = {}
    for module in surrogate.modules():
        if isinstance(module, Scalars):
            found |= {name: torch.as_tensor(module.value(name)) for name in module.learned}
    for name, parameter in surrogate.named_parameters():
        if parameter.ndim == 0:
            found.setdefault(name.rsplit(".", 1)[-1], parameter)
    values = torch.stack([value.float() for value in found.values()]).tolist() if found else []
    # JSON has no NaN; steps with non-finite gradients are skipped, so a number that is lost here is lost elsewhere too
    return {f"scalar_{name}": value for name, value in zip(found, values, strict=True) if math.isfinite(value)}
