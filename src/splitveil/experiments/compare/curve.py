"""A method's privacy as a function of accuracy, and its value at one accuracy.

The curve goes through the method's own non-dominated strengths (no other strength of the method is at least as
accurate and at least as private), linearly between neighbours. Below the least accurate of them it is flat, as far as
strengths were tried: they cost accuracy and gave no more privacy. It never leaves the range of accuracies tried.

Value at accuracy x between neighbours i and j, with means a (accuracy) and m (measure):

    V(x) = (1-w)·m_i + w·m_j,   w = (x - a_i)/(a_j - a_i),   slope b = (m_j - m_i)/(a_j - a_i)

Seed s contributes, to first order, its two cells carried to accuracy x along the slope:

    V_s(x) = (1-w)·(m_is - b·(a_is - a_i)) + w·(m_js - b·(a_js - a_j))

Their mean is V(x), so the t interval over V_s says what other seeds would give, with the uncertainty of both axes in
it, and two methods can be compared seed by seed. (A percentile bootstrap over three seeds has ten different draws and
covers far less than it says.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise

import numpy as np


@dataclass(frozen=True)
class Point:
    """One strength: per seed its accuracy and the measure."""

    accuracy: dict[int, float]
    value: dict[int, float]

    @cached_property
    def seeds(self) -> set[int]:
        return self.accuracy.keys() & self.value.keys()

    @cached_property
    def mean_accuracy(self) -> float:
        return float(np.mean([self.accuracy[seed] for seed in sorted(self.seeds)]))

    @cached_property
    def mean_value(self) -> float:
        return float(np.mean([self.value[seed] for seed in sorted(self.seeds)]))

    def carried(self, seed: int, slope: float) -> float:
        """The seed's value at the point's mean accuracy."""
        return self.value[seed] - slope * (self.accuracy[seed] - self.mean_accuracy)


@dataclass(frozen=True)
class Curve:
    """Non-dominated points by rising accuracy, and the range of accuracies that were tried."""

    points: tuple[Point, ...]
    low: float
    high: float

    def covers(self, accuracy: float) -> bool:
        # The ends are means of floats: a value read from a table must not miss them by a rounding.
        return self.low - 1e-9 <= accuracy <= self.high + 1e-9

    def parts(self, accuracy: float) -> list[tuple[Point, float, float]]:
        """The one or two points that decide here: (point, its weight, slope of the curve)."""
        places = [point.mean_accuracy for point in self.points]
        if accuracy <= places[0]:
            # Exactly on the first point the curve has that point's slope to the next; left of it it is flat.
            slope = self._slope(0) if len(places) > 1 and accuracy >= places[0] - 1e-9 else 0.0
            return [(self.points[0], 1.0, slope)]
        if accuracy >= places[-1]:
            return [(self.points[-1], 1.0, self._slope(len(places) - 2) if len(places) > 1 else 0.0)]
        after = int(np.searchsorted(places, accuracy, side="right"))
        before = after - 1
        weight = (accuracy - places[before]) / (places[after] - places[before])
        slope = self._slope(before)
        return [(self.points[before], 1 - weight, slope), (self.points[after], weight, slope)]

    def _slope(self, before: int) -> float:
        first, second = self.points[before], self.points[before + 1]
        return (second.mean_value - first.mean_value) / (second.mean_accuracy - first.mean_accuracy)

    def value(self, accuracy: float) -> float | None:
        """V(x), or None outside the range."""
        if not self.covers(accuracy):
            return None
        return sum(weight * point.mean_value for point, weight, _ in self.parts(accuracy))

    def per_seed(self, accuracy: float) -> dict[int, float]:
        """V_s(x) of every seed that the deciding points share; empty outside the range."""
        if not self.covers(accuracy):
            return {}
        parts = self.parts(accuracy)
        seeds = set.intersection(*(point.seeds for point, weight, _ in parts if weight > 0))
        return {
            seed: sum(weight * point.carried(seed, slope) for point, weight, slope in parts if weight > 0)
            for seed in sorted(seeds)
        }

    def area(self, low: float, high: float) -> float:
        """Area under V from `low` to `high`, divided by the width: the mean over that range of accuracies."""
        return sum(
            share * sum(w * p.mean_value for p, w, _ in self.parts(x)) for x, share in self._stretches(low, high)
        )

    def mean_over(self, low: float, high: float) -> dict[int, float]:
        """The same of V_s, for every seed that all points of the range share."""
        found = [(share, self.per_seed(middle)) for middle, share in self._stretches(low, high)]
        seeds = set.intersection(*(set(values) for _, values in found))
        return {seed: sum(share * values[seed] for share, values in found) for seed in sorted(seeds)}

    def _stretches(self, low: float, high: float) -> list[tuple[float, float]]:
        """Middle and share of each stretch between points. V is linear there: its middle gives its area exactly."""
        ends = [low, *(p.mean_accuracy for p in self.points if low < p.mean_accuracy < high), high]
        return [((left + right) / 2, (right - left) / (high - low)) for left, right in pairwise(ends)]


def make_curve(points: Sequence[Point], sign: int) -> Curve | None:
    """The curve through the non-dominated of `points`; None when no run has both numbers.

    `sign` is +1 where a larger value is more private.
    """
    usable = [point for point in points if point.seeds]
    if not usable:
        return None
    # From the most accurate down, a point is kept when it is more private than all that are at least as accurate.
    kept: list[Point] = []
    for point in sorted(usable, key=lambda p: (-p.mean_accuracy, -sign * p.mean_value)):
        if not kept or sign * point.mean_value > sign * kept[-1].mean_value:
            kept.append(point)
    places = [point.mean_accuracy for point in usable]
    return Curve(tuple(reversed(kept)), min(places), max(places))


def common_accuracy(curves: Sequence[Curve]) -> float | None:
    """The highest accuracy that all curves cover; where there is none, the highest that most of them cover."""
    if not curves:
        return None
    candidates = {curve.high for curve in curves}
    return max(candidates, key=lambda at: (sum(curve.covers(at) for curve in curves), at))


def common_range(curves: Sequence[Curve]) -> tuple[float, float] | None:
    """The accuracies that all curves cover, when it is more than a point."""
    low, high = max(curve.low for curve in curves), min(curve.high for curve in curves)
    return (low, high) if high - low > 1e-9 else None


def widest_range(curves: Mapping[str, Curve]) -> tuple[float, float, list[str]] | None:
    """The accuracies that most curves cover, at least two, and whose curves these are; of several, the widest range.

    A curve that covers a single accuracy, or others than all the rest, so does not take the range away from them.
    """
    ends = sorted({end for curve in curves.values() for end in (curve.low, curve.high)})
    found = []
    for low, high in combinations(ends, 2):
        names = [name for name, curve in curves.items() if curve.covers(low) and curve.covers(high)]
        if high - low > 1e-9 and len(names) > 1:
            found.append((len(names), high - low, low, high, names))
    if not found:
        return None
    *_, low, high, names = max(found, key=lambda one: one[:2])
    return low, high, names
