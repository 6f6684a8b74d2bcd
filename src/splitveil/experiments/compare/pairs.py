"""Which cells of two methods stand opposite each other, and the tests between them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

from splitveil.experiments.compare.grouping import Cell, Group
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
    """All pairs of methods, or each method against the baseline."""
    names = sorted(group.methods)
    if view.baseline not in names:  # none was named, or this part does not have it
        return list(combinations(names, 2))
    return [(name, view.baseline) for name in names if name != view.baseline]


def cell_tests(group: Group, view: View, attack: str) -> list[Pair]:
    """Tests at equal strength: of accuracy, and of the measure. Each measure is one family for the correction."""
    opposite = [
        (one, other)
        for first, second in method_pairs(group, view)
        for one in group.methods[first]
        for other in group.methods[second]
        if _opposite(one, other, group)
    ]
    pairs = []
    for measure in ("accuracy", view.measure):
        tests = [paired_test(a.values(attack, measure), b.values(attack, measure)) for a, b in opposite]
        found = [Pair(a.name, b.name, measure, t) for (a, b), t in zip(opposite, corrected(tests), strict=True)]
        pairs += [pair for pair in found if pair.test.n > 0]
    return pairs


def _opposite(one: Cell, other: Cell, group: Group) -> bool:
    """Cells face each other when the strengths they share agree, or when each is its method's only cell."""
    shared = one.strength.keys() & other.strength.keys()
    if shared and all(one.strength[key] == other.strength[key] for key in shared):
        return True
    return len(group.methods[one.method]) == len(group.methods[other.method]) == 1


def as_family(pairs: list[Pair]) -> list[Pair]:
    """The same pairs with p values corrected for their number."""
    tests = corrected([pair.test for pair in pairs])
    return [replace(pair, test=test) for pair, test in zip(pairs, tests, strict=True)]
