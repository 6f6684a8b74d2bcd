"""Cells that say nothing about privacy: those that guessing equals, in naming the class or in drawing the picture."""

from __future__ import annotations

from splitveil.core.listed import listed
from splitveil.experiments.compare.cells import Cell, Group


def guessing_notes(group: Group, attack: str) -> list[str]:
    """Name the cells that learned nothing, or not with every seed, and those on which the attack did worse than the
    mean picture."""
    idle = [cell.name for cell in group.cells if all(run.idle for run in cell.runs)]
    partly = [
        f"{cell.name} ({count} of {len(cell.runs)} seeds)"
        for cell in group.cells
        if 0 < (count := sum(1 for run in cell.runs if run.idle)) < len(cell.runs)
    ]
    beaten = [cell.name for cell in group.cells if _beaten(cell, attack)]
    notes = []
    if idle:
        notes.append(
            f"No better than always naming the most frequent class, so that what they leak says nothing about a model "
            f"that works: {listed(idle)}."
        )
    if partly:
        notes.append(
            f"The mean over seeds looks safer than it is where some of them are no better than always naming the most "
            f"frequent class: {listed(partly)}."
        )
    if beaten:
        notes.append(
            f"Guessing the mean picture does better than the attacks on {listed(beaten)}: beyond that a larger MSE is "
            "a weaker attack, not a safer model."
        )
    return notes


def _beaten(cell: Cell, attack: str) -> bool:
    pairs = [(run.value(attack, "mse"), run.floors.get("mean_image")) for run in cell.runs]
    known = [(found, floor) for found, floor in pairs if found is not None and floor is not None]
    return bool(known) and sum(found - floor for found, floor in known) > 0
