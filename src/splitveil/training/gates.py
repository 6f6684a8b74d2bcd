"""Gate lines (SPEC 6.8): what the gates did in the first five calls and in every 200th, printed at the end of an epoch.

[CEM-GATE][OK] step=200 classes=10 gate_d=0.512 hard_gate=0.431 base=2.113 rob_loss=0.4021
[CEM-GATE][SHUTOFF] step=400 classes=10 gate_d=0.498 hard_gate=0.960 base=2.205
"""

from __future__ import annotations

import logging

from torch import Tensor

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
