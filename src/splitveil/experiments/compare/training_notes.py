"""Cells whose training warned: a surrogate that was shut off for most of a run, say, was hardly compared at all."""

from __future__ import annotations

from splitveil.core.listed import listed
from splitveil.experiments.compare.cells import Group


def training_notes(group: Group) -> list[str]:
    """A sentence for each event that training counted: the cells, and how often in the run that had most of them."""
    cells: dict[str, dict[str, int]] = {}
    for cell in group.cells:
        for run in cell.runs:
            for event, times in run.warnings.items():
                found = cells.setdefault(event, {})
                found[cell.name] = max(times, found.get(cell.name, 0))
    return [
        f"Training counted {event} (in brackets: of one run, at most): "
        f"{listed([f'{name} ({times})' for name, times in found.items()])}."
        for event, found in cells.items()
    ]
