"""What a comparison is made of: cells, runs that differ in the seed alone; and groups of cells that may be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from splitveil.experiments.compare.labels import write_settings
from splitveil.experiments.compare.measures import MEASURES, WORST, WORST_ONCE, Measure, extra_measure
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


def _means(tables: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = sorted({name for one in tables for name in one})
    return {name: fmean(one[name] for one in tables if name in one) for name in names}


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
        return _means([record.floors for record in self.records])

    @property
    def extra_floors(self) -> dict[str, float]:
        """What guessing the mean picture has by the measures beside ours."""
        known = [{n: one["floor"] for n, one in record.extra.items() if "floor" in one} for record in self.records]
        return _means(known)

    @property
    def extra(self) -> dict[str, Measure]:
        """The measures beside ours. Where audits disagree on which way is private, nobody knows it."""
        signs: dict[str, set[int]] = {}
        for record in self.records:
            for name, one in record.extra.items():
                signs.setdefault(name, set()).add(int(one.get("sign", 0)))
        known = {name: found - {0} for name, found in sorted(signs.items())}
        return {name: extra_measure(name, min(found) if len(found) == 1 else 0) for name, found in known.items()}

    def measure(self, name: str) -> Measure:
        """One of ours, or one beside them; no run here need have it."""
        return MEASURES.get(name) or self.extra.get(name) or extra_measure(name, 0)

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
