"""What a comparison is made of: cells, runs that differ in the seed alone; and groups of cells that may be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from splitveil.experiments.compare.labels import write_settings
from splitveil.experiments.compare.measures import WORST, WORST_ONCE
from splitveil.experiments.compare.record import Record, Setting


@dataclass(frozen=True)
class Cell:
    """One method at one strength: runs that differ in the seed alone."""

    method: str
    strength: Mapping[str, Any]
    runs: tuple[Record, ...]  # by seed
    alone: bool = False  # the method has no other strength

    @property
    def label(self) -> str:
        return write_settings(self.strength)

    @property
    def name(self) -> str:
        """The method, with the strength where it has several."""
        return self.method if self.alone or not self.strength else f"{self.method}, {self.label}"

    @property
    def settings(self) -> Mapping[str, Any]:
        return self.runs[0].settings

    def values(self, attack: str, measure: str) -> dict[int, float]:
        """Value per seed; a run without a seed of its own counts under a negative number."""
        found = {}
        for position, run in enumerate(self.runs):
            value = run.value(attack, measure)
            if value is not None:
                found[-1 - position if run.seed is None else run.seed] = value
        return found


@dataclass(frozen=True)
class Group:
    """What may be compared: cells under one setting."""

    setting: Setting
    cells: tuple[Cell, ...]
    notes: tuple[str, ...]
    constant: Mapping[str, Any]  # strengths in which all cells agree: said once instead of in every row

    @property
    def records(self) -> list[Record]:
        return [run for cell in self.cells for run in cell.runs]

    @property
    def methods(self) -> dict[str, list[Cell]]:
        found: dict[str, list[Cell]] = {}
        for cell in self.cells:
            found.setdefault(cell.method, []).append(cell)
        return found

    @property
    def floors(self) -> dict[str, float]:
        """MSE of guessing, over the same runs as all other numbers: seeds may be attacked on other pictures."""
        found: dict[str, list[float]] = {}
        for record in self.records:
            for name, value in record.floors.items():
                found.setdefault(name, []).append(value)
        return {name: fmean(values) for name, values in sorted(found.items())}

    def attacks(self) -> list[str]:
        """The attacks that made pictures."""
        return sorted({attack for record in self.records for attack in record.scores})

    def ran(self) -> list[str]:
        """The attacks that were made, by the names under which they are asked for: "all attacks" means these."""
        pictures = {attack.partition(".")[0] for attack in self.attacks()} - {WORST, WORST_ONCE}
        return sorted(pictures | {what.partition(":")[0] for what in self.findings()})

    def findings(self) -> list[str]:
        """What the other attacks found out, each as "attack: what"."""
        return sorted({what for record in self.records for what in record.findings})
