"""How hard an audit tries: which attacks, with which options, on how many pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Name = Literal["smoke", "standard", "deep"]


@dataclass(frozen=True)
class Tier:
    """`attacks` run in this order (later ones may use earlier answers). `num_images` None: the whole test part."""

    attacks: dict[str, dict[str, Any]]
    num_images: int | None
    seeds: int = 1


# A decoder that a CPU trains in seconds: all work at the feature's own resolution (networks.py).
CPU_DECODER: dict[str, Any] = {"kind": "shuffle", "blocks": 2, "width": 64, "epochs": 8, "batch_size": 64, "lr": 2e-3}

TIERS: dict[str, Tier] = {
    "smoke": Tier({"decoder": CPU_DECODER}, num_images=2_000),
    "standard": Tier({"decoder": {}}, num_images=None),
    "deep": Tier({"decoder": {}}, num_images=None, seeds=3),
}
