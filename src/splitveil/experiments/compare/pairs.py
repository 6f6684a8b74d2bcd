"""Which cells of two methods stand opposite each other, and the tests between them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

from splitveil.core.listed import listed
from splitveil.experiments.compare.cells import Cell, Group
from splitveil.experiments.compare.naming import agree, meant, variants
from splitveil.experiments.compare.paired import PairedTest, corrected, paired_test
from splitveil.experiments.compare.view import View


@dataclass(frozen=True)
class Pair:
    """One test: first minus second."""

    first: str
    second: str
    measure: str
    test: PairedTest


def method_pairs(group: Group, view: View) -> list[tuple[str, str]]:
    """All pairs of methods, or each method against the baseline, or the pairs that were asked for."""
    names = sorted(group.methods)
    if view.pairs:  # once each, though two names may stand for the same methods
        return list(dict.fromkeys(pair for asked in view.pairs for pair in meant(*asked, names)))
    baselines = variants(view.baseline, names) if view.baseline else []
    if not baselines:  # none was named, or this part does not have it
        return list(combinations(names, 2))
    pairs = [(name, base) for name in names if name not in baselines for base in baselines]
    return [pair for pair in pairs if view.baseline in names or agree(*pair)]


def cell_tests(group: Group, view: View, attack: str) -> list[Pair]:
    """Tests at equal strength: of accuracy, and of the measure, all of them one family for the correction."""
    opposite = [faced for pair in method_pairs(group, view) for faced in _opposite(group, *pair)]
    found = [
        Pair(a.name, b.name, measure, paired_test(a.values(attack, measure), b.values(attack, measure)))
        for measure in ("accuracy", view.measure)
        for a, b in opposite
    ]
    return as_family([pair for pair in found if pair.test.n > 0])


def untested(group: Group, view: View, tests: list[Pair]) -> list[str]:
    """Sentences on the pairs of methods whose cells are not tested against each other, and why."""
    apart, strangers = [], []
    tested = {(pair.first, pair.second) for pair in tests}
    for first, second in method_pairs(group, view):
        faced = _opposite(group, first, second)
        if not faced:
            apart.append(f"{first} and {second}")
        elif not any((one.name, other.name) in tested for one, other in faced):
            strangers.append(f"{first} and {second}")
    notes = []
    if apart:
        why = "they were not tried at the same strength; compare them at equal accuracy"
        notes.append(f"No differences at equal strength between {listed(apart)}: {why}.")
    if strangers:
        notes.append(f"No differences seed by seed between {listed(strangers)}: they share no seed.")
    return notes


def twins(group: Group) -> list[str]:
    """One sentence on methods that gave the very same numbers with every seed: what differs between them is idle.

    Only attacked runs can show it: two different models often name equally many pictures right.
    """
    numbers = {
        cell.name: [(run.seed, run.accuracy, run.scores, run.findings) for run in cell.runs] for cell in group.cells
    }
    same = [
        f"{one.name} and {other.name}"
        for one, other in combinations(group.cells, 2)
        if one.method != other.method
        and all(run.scores or run.findings for run in one.runs)
        and numbers[one.name] == numbers[other.name]
    ]
    return [f"The very same numbers with every seed, so that what differs did nothing: {listed(same)}."] if same else []


def _opposite(group: Group, first: str, second: str) -> list[tuple[Cell, Cell]]:
    """Cells face each other when the strengths they share agree; where none do, a method's only cell faces all."""
    ones, others = group.methods[first], group.methods[second]
    faced = [(one, other) for one in ones for other in others if _agree(one, other)]
    if faced or min(len(ones), len(others)) > 1:
        return faced
    return [(one, other) for one in ones for other in others]


def _agree(one: Cell, other: Cell) -> bool:
    shared = one.strength.keys() & other.strength.keys()
    return bool(shared) and all(one.strength[key] == other.strength[key] for key in shared)


def as_family(pairs: list[Pair]) -> list[Pair]:
    """The same pairs with p values corrected for their number."""
    tests = corrected([pair.test for pair in pairs])
    return [replace(pair, test=test) for pair, test in zip(pairs, tests, strict=True)]
