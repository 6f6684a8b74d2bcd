"""Figures of what a surrogate does and of where features lie: on the page, and as files a paper can use."""

from __future__ import annotations

from splitveil.report.explain_file import Explained
from splitveil.report.figures.figure import Figure, Words
from splitveil.report.figures.gates import gate, gate_places, gate_training
from splitveil.report.figures.planes import plane_figures
from splitveil.report.figures.slots import assignment, attention, looks, slot_mass, slot_training


def figures(explained: Explained, words: Words) -> list[Figure]:
    """Every figure there is something to draw for, in reading order."""
    words = _with_unit(words, explained.unit)
    made = [
        attention(explained, words),
        slot_mass(explained, words),
        slot_training(explained, words),
        assignment(explained, words),
        looks(explained, words),
        *(
            figure
            for name, found in explained.gates.items()
            for figure in (gate(name, found, explained, words), gate_places(name, found, words))
        ),
        gate_training(explained, words),
    ]
    return [*(figure for figure in made if figure is not None), *plane_figures(explained, words)]


def _with_unit(words: Words, unit: str) -> Words:
    """The same texts, with the word for what samples are assigned to in the places {one}, {many} and {head}."""
    places = {form: words(f"unit.{unit}_{form}") for form in ("one", "many", "head")}
    return lambda key, **values: words(key, **places, **values)
