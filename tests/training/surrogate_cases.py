"""Settings of every surrogate that carry as much state as they can: memories, banks, counters, slot noise, dropout."""

from __future__ import annotations

from typing import Any

# feature: 4 channels of 2x2, so D = 16; shut off for a few calls only, so that its counter matters and the loss acts
_SHUT = {"early_shut": "steps_only", "early_shut_steps": 8}

CASES: dict[str, dict[str, Any]] = {
    "gmm corrected": {"name": "gmm"},
    "gmm faithful": {"name": "gmm", "mode": "faithful"},
    "gmm persistent": {"name": "gmm", "preset": "gmm.paper", "refit": "never"},
    "slot_cross corrected": {"name": "slot_cross", "num_heads": 4, "num_slots": 3},
    "slot_cross faithful": {"name": "slot_cross", "mode": "faithful", "num_heads": 4, "num_slots": 3},
    "gated corrected": {"name": "gated"},
    "gated faithful": {"name": "gated", "mode": "faithful", "memory": 8},
    "slot_gated corrected": {"name": "slot_gated", "num_slots": "auto", "slot_persist": True},
    "slot_gated faithful": {"name": "slot_gated", "mode": "faithful", "num_slots": 3, "memory": 8, **_SHUT},
    "enhanced corrected": {"name": "enhanced", "num_heads": 4, "num_slots": 3},
    "enhanced faithful": {"name": "enhanced", "mode": "faithful", "num_heads": 4, "num_slots": 3, "memory": 8},
    "rate corrected": {"name": "rate"},
    "rate faithful": {"name": "rate", "mode": "faithful"},
}
