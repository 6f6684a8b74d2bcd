"""Which cells beat others in both ways at once."""

from __future__ import annotations

from dataclasses import dataclass

from splitveil.experiments.compare.measures import Measure
from splitveil.experiments.compare.summaries import Summary


@dataclass(frozen=True)
class Dominates:
    """`first` is more accurate and more private than `second`, and no interval overlaps."""

    first: str
    second: str


def cell_dominance(summaries: list[Summary], attack: str, measure: Measure) -> list[Dominates]:
    """Relations between cells of different methods. A cell without an interval over seeds claims nothing."""
    found = []
    for one in summaries:
        for other in summaries:
            if one.cell.method == other.cell.method:
                continue
            if _beyond(one, other, attack, "accuracy", +1) and _beyond(one, other, attack, measure.name, measure.sign):
                found.append(Dominates(one.cell.name, other.cell.name))
    return found


def _beyond(one: Summary, other: Summary, attack: str, measure: str, sign: int) -> bool:
    mine, theirs = one.get(attack, measure), other.get(attack, measure)
    if mine is None or theirs is None or mine.over != "seeds" or theirs.over != "seeds":
        return False
    if mine.interval is None or theirs.interval is None:
        return False
    return min(sign * end for end in mine.interval) > max(sign * end for end in theirs.interval)
