"""How hard an audit tries: which attacks, with which options, on how many pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Tier:
    """`attacks` run in this order (later ones may use earlier answers). `num_images` None: the whole test part."""

    attacks: dict[str, dict[str, Any]]
    num_images: int | None
    seeds: int = 1


# A decoder that a CPU trains in seconds: all work at the feature's own resolution (networks.py).
CPU_DECODER: dict[str, Any] = {
    "kind": "shuffle",
    "blocks": 2,
    "width": 48,
    "epochs": 8,
    "batch_size": 32,
    "lr": 3e-3,
    "best_epoch": "shared",
}

# Sized for ten minutes on a GPU with 50,000 auxiliary pictures of 32 x 32: about two for `decoder` and `average`, four
# for `decoder_strong` (four racers, one growth, one more loss), and two for all the rest.
STANDARD: dict[str, dict[str, Any]] = {
    "decoder": {},
    "linear": {},
    "average": {"best_epoch": "off"},
    "retrieval": {},
    "decoder_strong": {"growths": 1, "seeds": 1},
    "optimize": {},
    "refine": {},
    "attribute": {},
    "membership": {},
}

TIERS: dict[str, Tier] = {
    "smoke": Tier(
        {"decoder": CPU_DECODER, "linear": {}, "average": {**CPU_DECODER, "repeats": 8}, "retrieval": {}},
        num_images=2_000,
    ),
    "standard": Tier(STANDARD, num_images=None),
    "deep": Tier(
        {
            **STANDARD,
            "decoder_strong": {"growths": 3, "seeds": 3, "members": 6},
            "optimize": {"steps": 2000, "restarts": 4},
            "refine": {"steps": 1000},
            "membership": {"shadows": 16},
            "substitute": {},
            "gan": {},
            "prior": {},
        },
        num_images=None,
        seeds=3,
    ),
}
