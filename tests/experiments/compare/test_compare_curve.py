"""Interpolation at equal accuracy, against plain loops, numerical integration and simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from splitveil.experiments.compare.curve import Curve, Point, common_accuracy, common_range, make_curve, widest_range
from splitveil.experiments.compare.estimate import estimate


def point(accuracy: float, value: float) -> Point:
    return Point({1: accuracy}, {1: value})


def curve(*places: tuple[float, float], sign: int = 1) -> Curve:
    made = make_curve([point(a, v) for a, v in places], sign)
    assert made is not None
    return made


def noisy(seed: int, seeds: int, places: list[tuple[float, float]]) -> list[Point]:
    """Every seed shifts all of its points together, and each point a little on its own."""
    random = np.random.default_rng(seed)
    shared = random.normal(0, [0.002, 0.0004], (seeds, 2))
    points = []
    for accuracy, value in places:
        own = shared + random.normal(0, [0.001, 0.0004], (seeds, 2))
        points.append(
            Point(
                {s: accuracy + float(own[s, 0]) for s in range(seeds)},
                {s: value + float(own[s, 1]) for s in range(seeds)},
            )
        )
    return points


LINE = [(0.90, 0.020), (0.88, 0.030), (0.84, 0.042)]


def by_hand(points: list[Point], at: float) -> float:
    """Straight lines between means, in a loop."""
    means = sorted((sum(p.accuracy.values()) / len(p.accuracy), sum(p.value.values()) / len(p.value)) for p in points)
    for (a, m), (b, n) in itertools.pairwise(means):
        if a <= at <= b:
            return m + (n - m) * (at - a) / (b - a)
    raise AssertionError("outside")


@pytest.mark.parametrize("at", [0.845, 0.86, 0.88, 0.893])
def test_between_two_strengths_it_is_a_straight_line(at: float) -> None:
    points = noisy(1, 3, LINE)
    made = make_curve(points, 1)
    assert made is not None
    assert made.value(at) == pytest.approx(by_hand(points, at))


def test_outside_the_range_nothing_is_said() -> None:
    made = curve(*LINE)
    for at in (0.8399, 0.9001, 0.5):
        assert made.value(at) is None
        assert made.per_seed(at) == {}
        assert not made.covers(at)
    assert made.value(0.84) == pytest.approx(0.042)
    assert made.value(0.90) == pytest.approx(0.020)


def test_a_dominated_strength_does_not_bend_the_curve() -> None:
    with_bad = curve(*LINE, (0.87, 0.015))  # less accurate and less private than 0.88 / 0.030
    for at in (0.85, 0.87, 0.875, 0.89):
        assert with_bad.value(at) == pytest.approx(curve(*LINE).value(at))


def test_where_stronger_settings_gave_no_more_privacy_it_is_flat() -> None:
    made = curve((0.90, 0.020), (0.88, 0.030), (0.80, 0.025))
    assert made.low == pytest.approx(0.80)
    assert made.value(0.83) == pytest.approx(0.030)
    assert made.value(0.89) == pytest.approx(0.025)


def test_one_strength_that_beats_all_others_is_flat_over_their_range() -> None:
    made = curve((0.90, 0.030), (0.88, 0.020), (0.86, 0.010))
    assert len(made.points) == 1
    assert made.value(0.87) == pytest.approx(0.030)
    assert made.value(0.905) is None


def test_less_is_better_for_ssim() -> None:
    made = curve((0.90, 0.6), (0.88, 0.5), (0.87, 0.55), (0.86, 0.4), sign=-1)
    assert [p.mean_value for p in made.points] == [0.4, 0.5, 0.6]


def test_equal_accuracies_keep_the_more_private_one() -> None:
    made = curve((0.88, 0.02), (0.88, 0.03), (0.90, 0.01))
    assert [p.mean_value for p in made.points] == [0.03, 0.01]
    assert made.value(0.89) == pytest.approx(0.02)


@pytest.mark.parametrize("at", [0.85, 0.875, 0.8975])
def test_the_seeds_average_to_the_curve(at: float) -> None:
    made = make_curve(noisy(2, 4, LINE), 1)
    assert made is not None
    assert np.mean(list(made.per_seed(at).values())) == pytest.approx(made.value(at))


def test_a_seed_is_carried_along_the_slope() -> None:
    """Moving a run along the curve itself (less accurate, more private as the slope says) is no change at all."""
    slope = (0.042 - 0.030) / (0.84 - 0.88)
    points = [
        Point({1: 0.88 + 0.004, 2: 0.88 - 0.004}, {1: 0.030 + 0.004 * slope, 2: 0.030 - 0.004 * slope}),
        Point({1: 0.84, 2: 0.84}, {1: 0.042, 2: 0.042}),
    ]
    made = make_curve(points, 1)
    assert made is not None
    assert made.per_seed(0.86) == pytest.approx({1: 0.036, 2: 0.036})
    assert made.per_seed(0.88) == pytest.approx({1: 0.030, 2: 0.030})


def test_the_spread_is_the_bootstraps_where_there_are_many_seeds() -> None:
    seeds = 40
    points = noisy(3, seeds, LINE)
    made = make_curve(points, 1)
    assert made is not None
    ours = np.std(list(made.per_seed(0.87).values()), ddof=1) / math.sqrt(seeds)
    random = np.random.default_rng(4)
    drawn = []
    for _ in range(1500):
        chosen = random.integers(0, seeds, seeds)
        again = [
            Point({i: p.accuracy[s] for i, s in enumerate(chosen)}, {i: p.value[s] for i, s in enumerate(chosen)})
            for p in points
        ]
        drawn.append(by_hand(again, 0.87))
    assert ours == pytest.approx(np.std(drawn), rel=0.08)


@pytest.mark.parametrize("at", [0.90, 0.87, 0.8401], ids=["end", "between", "other end"])
@pytest.mark.parametrize("seeds", [3, 6])
def test_the_interval_covers_as_often_as_it_says(at: float, seeds: int) -> None:
    true = by_hand([point(a, v) for a, v in LINE], at)
    covered = told = 0
    for trial in range(1500):
        # The ends of the range are themselves uncertain: ask for the accuracy nearest to `at` that is covered.
        made = make_curve(noisy(1000 + trial, seeds, LINE), 1)
        assert made is not None
        place = min(max(at, made.low), made.high)
        here = true + (place - at) * ((0.020 - 0.030) / 0.02 if at > 0.88 else (0.030 - 0.042) / 0.04)
        low, high = estimate(list(made.per_seed(place).values())).interval or (1.0, 0.0)
        told += 1
        covered += low <= here <= high
    # Linear to first order only, and the slope is estimated: between 93 and 97 %.
    assert 0.93 < covered / told < 0.97


def test_the_mean_over_a_range_is_that_of_the_seeds_that_all_of_it_has() -> None:
    points = noisy(5, 3, LINE)
    fewer = Point({s: points[0].accuracy[s] for s in (0, 1)}, points[0].value)  # the most accurate lacks seed 2
    made = make_curve([fewer, *points[1:]], 1)
    assert made is not None
    assert set(made.mean_over(0.85, 0.87)) == {0, 1, 2}
    assert set(made.mean_over(0.85, 0.89)) == {0, 1}


def test_the_area_is_the_integral() -> None:
    points = noisy(5, 3, [*LINE, (0.86, 0.031), (0.82, 0.040)])
    made = make_curve(points, 1)
    assert made is not None
    low, high = 0.83, 0.895
    grid = np.linspace(low, high, 8_001)
    middle = (grid[1:] + grid[:-1]) / 2
    for seed, found in made.mean_over(low, high).items():
        assert found == pytest.approx(np.mean([made.per_seed(float(x))[seed] for x in middle]), rel=1e-4)


def test_a_missing_seed_leaves_fewer_pairs_but_the_same_line() -> None:
    points = noisy(6, 4, LINE)
    thinner = [points[0], Point({s: points[1].accuracy[s] for s in (0, 2)}, {s: points[1].value[s] for s in (0, 2)})]
    made = make_curve(thinner, 1)
    assert made is not None
    assert set(made.per_seed(0.885)) == {0, 2}
    assert made.value(0.885) == pytest.approx(by_hand(thinner, 0.885))


def test_the_common_accuracy_is_the_highest_that_all_cover() -> None:
    first, second = curve((0.90, 0.02), (0.80, 0.03)), curve((0.88, 0.01), (0.85, 0.02))
    assert common_accuracy([first, second]) == pytest.approx(0.88)
    assert common_range([first, second]) == pytest.approx((0.85, 0.88))
    far = curve((0.60, 0.05), (0.50, 0.06))
    assert common_accuracy([first, second, far]) == pytest.approx(0.88)  # two of three
    assert common_range([first, far]) is None
    assert common_accuracy([]) is None
    assert make_curve([Point({}, {}), Point({1: 0.9}, {2: 0.1})], 1) is None


def spanning(low: float, high: float) -> Curve:
    found = make_curve([Point({1: low}, {1: 0.04}), Point({1: high}, {1: 0.02})], 1)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ({"a": (0.80, 0.90), "b": (0.85, 0.95)}, (0.85, 0.90, ["a", "b"])),
        # one that covers a point only, and one far away, take nothing from the other two
        ({"a": (0.80, 0.90), "b": (0.85, 0.95), "c": (0.99, 0.99), "d": (0.1, 0.2)}, (0.85, 0.90, ["a", "b"])),
        # three on a narrow range come before two on a wide one
        ({"a": (0.70, 0.90), "b": (0.71, 0.95), "c": (0.89, 0.99)}, (0.89, 0.90, ["a", "b", "c"])),
        # two pairs: the wider range
        ({"a": (0.70, 0.80), "b": (0.75, 0.79), "c": (0.90, 0.99), "d": (0.91, 0.97)}, (0.91, 0.97, ["c", "d"])),
        ({"a": (0.70, 0.80), "b": (0.80, 0.90)}, None),  # they touch
        ({"a": (0.70, 0.80)}, None),
    ],
)
def test_the_range_that_most_curves_cover(
    spans: dict[str, tuple[float, float]], expected: tuple[float, float, list[str]] | None
) -> None:
    assert widest_range({name: spanning(*span) for name, span in spans.items()}) == expected
