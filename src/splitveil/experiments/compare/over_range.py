"""Two methods over all accuracies that both cover.

A difference at one accuracy depends on which one is read. The mean of each curve over the range that the two share
does not, and it uses every strength in it: one test for each pair of methods, seed by seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from splitveil.experiments.compare.cells import Group
from splitveil.experiments.compare.curve import Curve, common_range
from splitveil.experiments.compare.paired import paired_test
from splitveil.experiments.compare.pairs import Pair, as_family, method_pairs
from splitveil.experiments.compare.view import View


@dataclass(frozen=True)
class OverRange:
    """The mean of the first curve minus that of the second, from `low` to `high`."""

    low: float
    high: float
    pair: Pair


def range_tests(group: Group, view: View, curves: Mapping[str, Curve]) -> list[OverRange]:
    """One family of tests for the correction; pairs of curves without a common range or a shared seed have none."""
    ranges, pairs = [], []
    for first, second in method_pairs(group, view):
        if first not in curves or second not in curves:
            continue
        shared = common_range([curves[first], curves[second]])
        if shared is None:
            continue
        test = paired_test(curves[first].mean_over(*shared), curves[second].mean_over(*shared))
        if test.n > 0:
            ranges.append(shared)
            pairs.append(Pair(first, second, view.measure, test))
    return [OverRange(*shared, pair) for shared, pair in zip(ranges, as_family(pairs), strict=True)]
