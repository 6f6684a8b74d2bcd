"""Mean, spread and interval of every number of a cell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from splitveil.core.listed import listed
from splitveil.experiments.compare.cells import Cell, Group
from splitveil.experiments.compare.estimate import Estimate, estimate
from splitveil.experiments.compare.measures import FINDINGS, LEAKS, MEASURES, Measure


@dataclass(frozen=True)
class Summary:
    """One cell: its accuracy, and per attack, and per finding, the measures that at least one run has."""

    cell: Cell
    accuracy: Estimate | None
    leaks: dict[str, dict[str, Estimate]]
    findings: dict[str, dict[str, Estimate]]

    def get(self, attack: str, measure: str) -> Estimate | None:
        return self.accuracy if measure == "accuracy" else self.leaks.get(attack, {}).get(measure)


def summarise(group: Group) -> list[Summary]:
    summaries = []
    for cell in group.cells:
        leaks = _estimates(cell, group.attacks(), [*LEAKS, *group.extra])
        findings = _estimates(cell, group.findings(), FINDINGS)
        summaries.append(Summary(cell, cell_estimate(cell, "", "accuracy"), leaks, findings))
    return summaries


def _estimates(cell: Cell, attacks: list[str], measures: Iterable[str]) -> dict[str, dict[str, Estimate]]:
    every = {
        attack: {name: one for name in measures if (one := cell_estimate(cell, attack, name))} for attack in attacks
    }
    return {attack: found for attack, found in every.items() if found}


def cell_estimate(cell: Cell, attack: str, measure: str) -> Estimate | None:
    """The estimate over the runs that have the number; None when none has."""
    values = list(cell.values(attack, measure).values())
    if not values:
        return None
    known = [run for run in cell.runs if run.value(attack, measure) is not None]
    found = estimate(values, known[0].intervals.get(attack, {}).get(measure))
    if found.low is None or found.high is None:
        return found
    known_of = FINDINGS if attack in known[0].findings else MEASURES  # an audit's own measure may be called `rate`, too
    ours = known_of.get(measure)  # of others nobody knows what values they can have
    return replace(found, low=ours.clip(found.low), high=ours.clip(found.high)) if ours else found


def seed_notes(summaries: list[Summary], attack: str, measure: Measure) -> list[str]:
    """Say where there is only one seed, and where runs lack a number: the accuracy, or the attack's `measure`."""
    single = [summary.cell.name for summary in summaries if len(summary.cell.runs) == 1]
    notes = []
    if single:
        which = "Every cell has" if len(single) == len(summaries) else f"{listed(single, 4)}: only"
        notes.append(f"{which} one seed: no spread over seeds; an interval there is over pictures.")
    for summary in summaries:
        runs = len(summary.cell.runs)
        for what, title in (("accuracy", "accuracy"), (measure.name, measure.title)):
            found = summary.get(attack, what)
            if found is not None and found.n < runs:
                notes.append(f"{summary.cell.name}: {title} of {found.n} of {runs} runs only.")
    return notes
