"""What an audit is about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from splitveil.audit.plan import Plan
from splitveil.audit.subjects import AuditData, Mode, Subjects
from splitveil.core.plug_ins import packages_of, pinned
from splitveil.core.seeding import generator
from splitveil.models.split import SplitModel


@dataclass(frozen=True)
class Scope:
    """The model, the pictures and the attacks of an audit: all that is settled before anything is attacked."""

    model: SplitModel
    data: AuditData
    subjects: Subjects
    tier: str
    mode: Mode
    plan: Plan
    epochs: int | None  # what the caller asked for in place of the tier's number
    seed: int

    def stream(self, purpose: str) -> torch.Generator:
        """The random numbers of one purpose, on the device of the pictures."""
        return generator(self.seed, purpose, device=self.subjects.targets.images.device)

    def pins(self, weights: str, measures: Iterable[str]) -> dict[str, Any]:
        """What a signature tells of an audit, beside its plan; `weights` is their checksum."""
        return {
            "tier": self.tier,
            "mode": self.mode,
            "images": len(self.subjects.targets),
            "model": weights[:10],
            "pictures": self.data.checksum(),  # `data:` is the run's own, in the first part of the signature
            "attack_seed": self.seed,
            **pinned({**packages_of("attacks", self.plan), **packages_of("measures", measures)}),
        }
