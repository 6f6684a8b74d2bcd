"""One run under one audit, as numbers; and the setting under which numbers may be compared at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

Settings = Mapping[str, Any]  # "section.key" -> value; everything of a config.toml but the seed


@dataclass(frozen=True)
class Setting:
    """Everything that must agree before two numbers go into one table (DESIGN 5)."""

    data: str
    protocol: str
    mode: str
    tier: str
    images: str
    attacks: str
    code: str

    def differs_from(self, others: list[Setting]) -> list[str]:
        """Names of the parts in which not all settings agree."""
        return [part.name for part in fields(self) if len({getattr(one, part.name) for one in [self, *others]}) > 1]

    def sentence(self) -> str:
        """For a heading or a caption."""
        if self.mode == NOT_ATTACKED:
            return f"{self.data}, {self.protocol} protocol, not attacked, code {self.code}"
        return (
            f"{self.data}, {self.protocol} protocol, {self.mode.replace('_', '-')} attacks, tier {self.tier}, "
            f"{self.images} pictures, attack options {self.attacks}, code {self.code}"
        )


NOT_ATTACKED = "not attacked"
WORDS = {  # how a part of a setting is called in a sentence
    "data": "data",
    "protocol": "protocol",
    "mode": "attack mode",
    "tier": "tier",
    "images": "number of pictures",
    "attacks": "attack settings",
    "code": "code version",
}


@dataclass(frozen=True)
class Record:
    """One run under one audit. Numbers are kept to six significant digits (see `keep`)."""

    name: str
    setting: Setting
    settings: Settings
    seed: int | None
    accuracy: float | None  # mean of the last epochs
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # attack -> measure -> value
    findings: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # "membership: likelihood_ratio" -> ...
    intervals: Mapping[str, Mapping[str, tuple[float, float]]] = field(default_factory=dict)  # of both, over pictures
    floors: Mapping[str, float] = field(default_factory=dict)  # MSE of guessing
    label: str | None = None  # the sweep's name for the method
    checksum: str | None = None  # of the data and its parts
    signature: str | None = None
    hardware: str | None = None
    torch: str | None = None
    ended: str = ""
    seconds: float | None = None  # training and this audit
    failures: tuple[str, ...] = ()
    plug_ins: Mapping[str, str] = field(default_factory=dict)  # packages that trained it -> checksum of their code
    kept: float | None = None  # accuracy of the very weights that were stored and attacked
    warnings: Mapping[str, int] = field(default_factory=dict)  # what training counted -> how often
    idle: bool | None = None  # True: no better than always naming the most frequent class
    # measures of the audit's own beside ours -> "sign" as in `Measure`, and "floor", what guessing the mean picture has
    extra: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    count_kept: bool = False  # that one counts; a choice of the view, in no file

    def value(self, attack: str, measure: str) -> float | None:
        """The accuracy, or a measure of an attack (in `scores`) or of a finding (in `findings`)."""
        if measure == "accuracy":
            return self.kept if self.count_kept and self.kept is not None else self.accuracy
        found = self.scores.get(attack) or self.findings.get(attack, {})
        return found.get(measure)


def keep(value: float) -> float:
    """Six significant digits, so that a data file and the folders it came from give the very same tables.

    >>> keep(0.004627756700261632)
    0.00462776
    """
    return float(f"{value:.6g}")
