"""What an adversary may see."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class ThreatModel:
    """What an adversary may see. Everybody knows the shapes and the noise law of what is sent."""

    features: bool = True  # one transmission of each picture under attack
    repeats: bool = False  # further transmissions of the same pictures
    queries: bool = False  # what the device sends for pictures of the adversary's choice
    weights: bool = False  # both halves, and gradients through them
    cloud: bool = False  # the cloud half alone: the adversary is the server
    auxiliary: bool = False  # pictures of its own, from the same world
    labels: bool = False  # labels and other attributes of those pictures
    candidates: bool = False  # pictures, with labels, of which it asks whether they were trained on

    def granted(self) -> list[str]:
        """Names of what is granted, for people and for audit.json."""
        return [item.name for item in fields(self) if getattr(self, item.name)]

    def covers(self, other: ThreatModel) -> bool:
        """Whether this adversary sees everything the other one sees."""
        return set(other.granted()) <= set(self.granted())
