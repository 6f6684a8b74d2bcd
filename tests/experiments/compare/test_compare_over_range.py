"""The test of two methods over all accuracies that both cover, against numerical integration, scipy and simulation."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from splitveil.experiments.compare.collect import collect
from splitveil.experiments.compare.comparison import Table, compare
from splitveil.experiments.compare.curve import Curve, Point, common_range, make_curve
from splitveil.experiments.compare.machine import as_tree
from splitveil.experiments.compare.paired import paired_test
from splitveil.experiments.compare.prose import parts
from splitveil.experiments.compare.view import View

Cells = list[dict[str, Any]]
STRENGTHS = {
    "a": [(0.90, 0.020), (0.86, 0.031), (0.82, 0.040)],
    "b": [(0.89, 0.024), (0.84, 0.039)],
    "c": [(0.88, 0.02)],
}
STRENGTHS["c"] += [(0.85, 0.03)]


def random_cells(seeds: int = 4) -> Cells:
    random = np.random.default_rng(8)
    return [
        {"method": method, "surrogate": "gmm" if method == "a" else "gated", "weight": float(place), "seed": seed}
        | {"accuracy": accuracy + random.normal(0, 0.002), "mse": mse + random.normal(0, 0.001)}
        | {"settings": {"model": {"name": "vgg11", "cut": 4 + ord(method)}}}
        for method, line in STRENGTHS.items()
        for place, (accuracy, mse) in enumerate(line, start=1)
        for seed in range(1, seeds + 1)
    ]


def table_of(path: Path, **view: Any) -> Table:
    found = collect([path])
    (table,) = compare(found.records, View(**view), found.notes).tables
    return table


def contributions(cells: Cells, method: str, places: np.ndarray) -> np.ndarray:
    """V_s(x) of every place and seed, in plain loops: each seed's runs carried along the line between the means."""
    own = [cell for cell in cells if cell["method"] == method]
    seeds = sorted({cell["seed"] for cell in own})
    line = []
    for weight in {cell["weight"] for cell in own}:
        accuracy = np.array(
            [next(c for c in own if (c["weight"], c["seed"]) == (weight, s))["accuracy"] for s in seeds]
        )
        mse = np.array([next(c for c in own if (c["weight"], c["seed"]) == (weight, s))["mse"] for s in seeds])
        line.append((accuracy.mean(), mse.mean(), accuracy, mse))
    line.sort(key=lambda one: one[0])
    found = np.empty((len(places), len(seeds)))
    for row, x in enumerate(places):
        for (a, m, a_s, m_s), (b, n, b_s, n_s) in itertools.pairwise(line):
            if a - 1e-12 <= x <= b + 1e-12:
                share, slope = (x - a) / (b - a), (n - m) / (b - a)
                found[row] = (1 - share) * (m_s - slope * (a_s - a)) + share * (n_s - slope * (b_s - b))
                break
        else:
            raise AssertionError(f"{x} is outside")
    return found


def ends(cells: Cells, method: str) -> tuple[float, float]:
    own = [cell for cell in cells if cell["method"] == method]
    means = [np.mean([c["accuracy"] for c in own if c["weight"] == w]) for w in {c["weight"] for c in own}]
    return float(min(means)), float(max(means))


def test_it_is_the_t_test_of_the_integrals(tmp_path: Path, sweep: Callable[..., Path]) -> None:
    cells = random_cells()
    table = table_of(sweep(tmp_path / "sweep", cells))
    assert table.equal is not None
    tests = {(one.pair.first, one.pair.second): one for one in table.equal.over_range}
    assert set(tests) == {("a", "b"), ("a", "c"), ("b", "c")}
    expected = {}
    for first, second in tests:
        low = max(ends(cells, first)[0], ends(cells, second)[0])
        high = min(ends(cells, first)[1], ends(cells, second)[1])
        grid = np.linspace(low, high, 4_001)
        middle = (grid[1:] + grid[:-1]) / 2
        gaps = (contributions(cells, first, middle) - contributions(cells, second, middle)).mean(axis=0)
        expected[first, second] = stats.ttest_1samp(gaps, 0.0).pvalue
        one = tests[first, second]
        assert (one.low, one.high) == pytest.approx((low, high))
        assert one.pair.test.n == 4
        assert one.pair.test.difference == pytest.approx(gaps.mean(), rel=1e-4)
        interval = stats.ttest_1samp(gaps, 0.0).confidence_interval()
        assert (one.pair.test.low, one.pair.test.high) == pytest.approx((interval.low, interval.high), rel=1e-3)
        assert one.pair.test.p_t == pytest.approx(expected[first, second], rel=1e-3)
    # Holm by hand: the smallest of three counts three times, the next twice, and none goes below the one before it
    running = 0.0
    for rank, (pair, p) in enumerate(sorted(expected.items(), key=lambda item: item[1])):
        running = max(running, min(1.0, (3 - rank) * p))
        assert tests[pair].pair.test.p_t_holm == pytest.approx(running, rel=1e-3)


def test_only_the_pairs_that_were_asked_for(tmp_path: Path, sweep: Callable[..., Path]) -> None:
    table = table_of(sweep(tmp_path / "sweep", random_cells()), pairs=(("c", "a"),))
    assert table.equal is not None
    (one,) = table.equal.over_range
    assert (one.pair.first, one.pair.second) == ("c", "a")
    assert one.pair.test.p_t_holm == one.pair.test.p_t


def test_curves_without_common_accuracies_or_seeds_have_no_test(tmp_path: Path, sweep: Callable[..., Path]) -> None:
    cells = [cell for cell in random_cells() if cell["method"] != "c"]
    far = [cell | ({"accuracy": cell["accuracy"] - 0.2} if cell["method"] == "b" else {}) for cell in cells]
    strangers = [cell | ({"seed": cell["seed"] + 10} if cell["method"] == "b" else {}) for cell in cells]
    for number, changed in enumerate((far, strangers)):
        equal = table_of(sweep(tmp_path / f"sweep{number}", changed)).equal
        assert equal is not None
        assert len(equal.curves) == 2
        assert equal.over_range == []


def test_what_was_put_in_is_found_and_told(two_curves: Path) -> None:
    found = collect([two_curves])
    comparison = compare(found.records, View(), found.notes)
    (part,) = parts(comparison)
    (grid,) = [grid for grid in part.grids if grid.caption.startswith("Differences in mean MSE over the accuracies")]
    assert grid.head[:4] == ["accuracies %", "first", "second", "seeds"]
    assert [row[:4] for row in grid.rows] == [["85.00 - 90.00", "gated", "gmm", "3"]]
    assert grid.rows[0][4].startswith("0.00400")
    (told,) = as_tree(comparison)["tables"][0]["equal_accuracy"]["tests_over_range"]
    assert (told["low"], told["high"], told["first"]) == (0.85, 0.9, "gated")
    assert told["test"]["difference"] == pytest.approx(0.004)


@pytest.mark.parametrize("seeds", [3, 6])
def test_equal_methods_differ_as_often_as_chance_has_it(seeds: int) -> None:
    """Two methods with the same truth: p < 0.05 in 5 % of the cases."""
    random = np.random.default_rng(seeds)

    def drawn() -> Curve:
        shared = random.normal(0, [0.002, 0.0004], (seeds, 2))
        own = {
            place: place + shared + random.normal(0, [0.001, 0.0004], (seeds, 2))
            for place in ((0.90, 0.020), (0.88, 0.030), (0.84, 0.042))
        }
        made = make_curve([Point(*({s: v[s, i] for s in range(seeds)} for i in (0, 1))) for v in own.values()], 1)
        assert made is not None
        return made

    alarms = 0
    for _ in range(1500):
        one, other = drawn(), drawn()
        shared = common_range([one, other])
        assert shared is not None
        p = paired_test(one.mean_over(*shared), other.mean_over(*shared)).p_t
        alarms += p is not None and p < 0.05
    assert 0.03 < alarms / 1500 < 0.07
