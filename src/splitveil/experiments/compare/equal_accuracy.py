"""Methods at equal accuracy: value, area, tests, and where one curve lies above another."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from splitveil.core.listed import listed
from splitveil.experiments.compare.cells import Group
from splitveil.experiments.compare.curve import Curve, Point, common_accuracy, common_range, make_curve, widest_range
from splitveil.experiments.compare.estimate import Estimate, estimate
from splitveil.experiments.compare.measures import Measure
from splitveil.experiments.compare.over_range import OverRange, range_tests
from splitveil.experiments.compare.paired import paired_test
from splitveil.experiments.compare.pairs import Pair, as_family, method_pairs
from splitveil.experiments.compare.view import View

CLOSE_SHOWN = 4
GRID = 50  # places between the ends at which two curves are held against each other, beside their own points


@dataclass(frozen=True)
class AtAccuracy:
    """One method at one accuracy; `value` is None where its strengths do not cover it."""

    method: str
    at: float
    value: Estimate | None


@dataclass(frozen=True)
class Above:
    """How `first` lies against `second` where both have a curve: the share of the common accuracies at which it is more
    private, and whether it is so everywhere beyond the intervals (None: somewhere there is no interval to go beyond,
    for want of two shared seeds). `same`: they are one curve."""

    first: str
    second: str
    low: float
    high: float
    share: float
    beyond_intervals: bool | None
    same: bool = False


@dataclass(frozen=True)
class EqualAccuracy:
    """The fair comparison (SPEC 8.2)."""

    curves: dict[str, Curve]
    values: list[AtAccuracy]
    tests: list[tuple[float, Pair]]
    over_range: list[OverRange]
    range: tuple[float, float] | None
    areas: dict[str, Estimate]
    above: list[Above]
    notes: list[str]


def equal_accuracy(group: Group, view: View, attack: str) -> EqualAccuracy:
    """Interpolate every method with two or more strengths; the others have no curve and are only named."""
    measure = group.measure(view.measure)
    curves, notes = {}, []
    for method, cells in group.methods.items():
        points = [Point(cell.values(attack, "accuracy"), cell.values(attack, view.measure)) for cell in cells]
        curve = make_curve(points, measure.sign)
        if curve is not None and sum(1 for point in points if point.seeds) > 1:
            curves[method] = curve
    alone = [method for method in group.methods if method not in curves]
    if len(curves) < 2:
        notes.append(
            "No interpolation at equal accuracy: it needs two methods with two or more strengths each "
            f"({len(curves)} of {len(group.methods)} here have them)."
        )
        return EqualAccuracy(curves, [], [], [], None, {}, [], notes)
    if alone:
        notes.append(f"One strength only, so no curve: {'; '.join(alone)}.")
    notes += _uneven(group, curves)
    chosen = view.at or tuple(at for at in [common_accuracy(list(curves.values()))] if at is not None)
    values, tests = [], []
    for at in chosen:
        for method, curve in curves.items():
            value = _value(curve, at, measure)
            values.append(AtAccuracy(method, at, value))
            if value is None:
                notes.append(
                    f"{method} is not covered at {100 * at:.2f} %: its strengths reach from "
                    f"{100 * curve.low:.2f} to {100 * curve.high:.2f} %."
                )
        tests += [(at, pair) for pair in _tests(group, view, curves, at)]
    # one family for the correction, over all accuracies that were asked for
    tests = [(at, pair) for (at, _), pair in zip(tests, as_family([pair for _, pair in tests]), strict=True)]
    notes += _unresolved(group, view, attack, curves)
    shared, areas = None, {}
    if (widest := widest_range(curves)) is None:
        notes.append("There is no range of accuracies that two curves cover, so no area is given.")
    else:
        low, high, covering = widest
        shared = (low, high)
        areas = {
            method: _around(curves[method].area(*shared), curves[method].mean_over(*shared), measure)
            for method in covering
        }
        if left_out := [method for method in curves if method not in covering]:
            notes.append(f"The area is over accuracies that these curves do not cover: {'; '.join(left_out)}.")
    over_range, above = range_tests(group, view, curves), _above(group, view, curves)
    return EqualAccuracy(curves, values, tests, over_range, shared, areas, above, notes)


def _uneven(group: Group, curves: Mapping[str, Curve]) -> list[str]:
    """One sentence where curves rest on different numbers of strengths: they are then not read on equal terms."""
    by_number: dict[int, list[str]] = {}
    for method in curves:
        by_number.setdefault(len(group.methods[method]), []).append(method)
    if len(by_number) < 2:
        return []
    told = ", ".join(f"{number} ({'; '.join(names)})" for number, names in sorted(by_number.items()))
    return [
        f"Strengths tried per method: {told}. A curve of few strengths is a coarse line, mostly below the curve that "
        "more of them would show: such methods may look worse than they are."
    ]


def _value(curve: Curve, at: float, measure: Measure) -> Estimate | None:
    """V(x) with the interval over the seeds that decide there."""
    value = curve.value(at)
    return None if value is None else _around(value, curve.per_seed(at), measure)


def _around(value: float, seeds: Mapping[int, float], measure: Measure) -> Estimate:
    """A value of the curve with the interval that the contributions of the seeds give."""
    if len(seeds) < 2:
        return Estimate(value, len(seeds))
    found = estimate(list(seeds.values()))
    # With seeds missing in one of the cells, the mean over the shared ones is a little off the curve.
    shift = value - found.mean
    low, high = (None if end is None else measure.clip(end + shift) for end in (found.low, found.high))
    return Estimate(value, found.n, found.sd, low, high, found.over)


def _tests(group: Group, view: View, curves: dict[str, Curve], at: float) -> list[Pair]:
    pairs = [
        Pair(first, second, view.measure, paired_test(curves[first].per_seed(at), curves[second].per_seed(at)))
        for first, second in method_pairs(group, view)
        if first in curves and second in curves and curves[first].covers(at) and curves[second].covers(at)
    ]
    return [pair for pair in pairs if pair.test.n > 0]


def _unresolved(group: Group, view: View, attack: str, curves: Mapping[str, Curve]) -> list[str]:
    """One sentence on the methods with neighbouring strengths whose accuracies the seeds do not tell apart.

    Between those the slope of the curve is mostly noise, and first-order intervals cover too little: 72 % instead of
    95 % in simulations where the accuracies of neighbours differ by a third of their standard deviation over seeds.
    """
    close = []
    for method in curves:
        cells = [
            (cell, Point(cell.values(attack, "accuracy"), cell.values(attack, view.measure)))
            for cell in group.methods[method]
        ]
        ordered = sorted((pair for pair in cells if pair[1].seeds), key=lambda pair: pair[1].mean_accuracy)
        for (one, first), (other, second) in pairwise(ordered):
            gaps = [second.accuracy[seed] - first.accuracy[seed] for seed in sorted(first.seeds & second.seeds)]
            found = estimate(gaps) if len(gaps) > 1 else None
            if found is not None and found.sd is not None and abs(found.mean) < 2 * found.sd / math.sqrt(found.n):
                close.append(f"{method} ({one.label} and {other.label})")
    if not close:
        return []
    return [
        "Strengths with the same accuracy within the spread over seeds: "
        f"{listed(close, CLOSE_SHOWN)}. Between them an interval at equal "
        "accuracy is too narrow; take strengths further apart, or more seeds."
    ]


def _above(group: Group, view: View, curves: dict[str, Curve]) -> list[Above]:
    """Every pair in the direction in which it holds on at least half of the common range."""
    sign = group.measure(view.measure).sign
    found = []
    for first, second in method_pairs(group, view):
        if first not in curves or second not in curves:
            continue
        one, other = curves[first], curves[second]
        shared = common_range([one, other])
        if shared is None:
            continue
        own = [p.mean_accuracy for c in (one, other) for p in c.points if shared[0] < p.mean_accuracy < shared[1]]
        places = sorted({*np.linspace(*shared, GRID).tolist(), *own})
        gains = [sign * ((one.value(x) or 0.0) - (other.value(x) or 0.0)) for x in places]
        widths = [b - a for a, b in pairwise(places)]
        # Between neighbouring places the gain is linear: the share of a stretch above 0 follows from its two ends.
        share = sum(w * _positive(a, b) for w, (a, b) in zip(widths, pairwise(gains), strict=True)) / sum(widths)
        if share < 0.5:
            first, second, one, other, share = second, first, other, one, 1 - share
        least = [_least_gain(one, other, x, sign) for x in places]
        clear = None if None in least else all(gain is not None and gain > 0 for gain in least)
        found.append(Above(first, second, *shared, share, clear, same=not any(gains)))
    return found


def _positive(a: float, b: float) -> float:
    """Share of a straight line from a to b that is above 0; a line along 0 counts half for each side."""
    if a == b == 0:
        return 0.5
    if a * b >= 0:
        return float(a + b > 0)
    return max(a, b) / abs(a - b)


def _least_gain(one: Curve, other: Curve, at: float, sign: int) -> float | None:
    """The lower end of the interval of the difference over shared seeds; above 0 it lies on the private side."""
    mine, theirs = one.per_seed(at), other.per_seed(at)
    gains = [sign * (mine[seed] - theirs[seed]) for seed in sorted(mine.keys() & theirs.keys())]
    interval = estimate(gains).interval if gains else None
    return None if interval is None else interval[0]
