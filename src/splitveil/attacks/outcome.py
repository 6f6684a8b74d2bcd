"""What an attack gives back: pictures, or something else that it found out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Reconstruction:
    """Pictures an attack made from what was sent: the first `len(images)` of the pictures under attack, in order.

    `variants` are further answers of the same attack (an early-stopped decoder). `curve` pairs effort (epochs,
    capacity) with the error the attacker itself can measure: it shows whether the attack had converged.
    """

    images: Tensor  # [M, ch, h, w] floats in [0, 1]
    variants: dict[str, Tensor] = field(default_factory=dict)
    curve: list[tuple[float, float]] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Inference:
    """What an attack found out that is not a picture. The attack does not know the truth; the audit does.

    `scores` rate each candidate (higher: rather trained on); `predictions` name a value of an attribute for each
    picture under attack, as "ATTRIBUTE from SOURCE".
    """

    scores: dict[str, Tensor] = field(default_factory=dict)
    predictions: dict[str, Tensor] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)


Outcome = Reconstruction | Inference
