"""The whole comparison: what it says, in every form, and that the order of the paths changes nothing."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from splitveil.core.errors import UnknownNameError, UsageError
from splitveil.experiments.compare import prose
from splitveil.experiments.compare.cells import Cell
from splitveil.experiments.compare.collect import collect
from splitveil.experiments.compare.comparison import Comparison, Table, compare
from splitveil.experiments.compare.data_file import DataFile, data_text
from splitveil.experiments.compare.dominance import cell_dominance
from splitveil.experiments.compare.estimate import Estimate
from splitveil.experiments.compare.formats import choose_format, write_as
from splitveil.experiments.compare.machine import as_csv, as_tree
from splitveil.experiments.compare.measures import MEASURES
from splitveil.experiments.compare.part import Grid, Part
from splitveil.experiments.compare.prose import parts
from splitveil.experiments.compare.render import as_latex, as_markdown, as_text, escape_latex, escape_markdown
from splitveil.experiments.compare.summaries import Summary
from splitveil.experiments.compare.view import View

Make = Callable[..., Path]


def comparison(*paths: Path, **view: Any) -> Comparison:
    found = collect(list(paths))
    return compare(found.records, View(**view), found.notes)


def only(*paths: Path, **view: Any) -> Table:
    (table,) = comparison(*paths, **view).tables
    return table


def test_a_cell_is_summed_up_over_its_seeds(two_curves: Path) -> None:
    table = only(two_curves)
    first = table.summaries[0]
    assert (first.cell.method, first.cell.label) == ("gated", "weight 4")
    assert first.accuracy is not None
    assert first.accuracy.mean == pytest.approx(0.90)
    assert first.accuracy.n == 3
    mse = first.get("worst_case", "mse")
    assert mse is not None
    assert mse.mean == pytest.approx(0.024)
    assert mse.sd == pytest.approx(0.0005 * 1.25 * (1.5**2 / 3 * 2 / 2) ** 0.5, rel=1e-5)
    assert {"decoder", "linear", "decoder.best_epoch", "worst_case"} <= set(first.leaks)


def test_at_equal_accuracy_the_difference_is_what_was_put_in(two_curves: Path) -> None:
    equal = only(two_curves, at=(0.86, 0.88)).equal
    assert equal is not None
    for at in (0.86, 0.88):
        values = {one.method: one.value for one in equal.values if one.at == at}
        assert values["gated"] is not None
        assert values["gmm"] is not None
        assert values["gated"].mean - values["gmm"].mean == pytest.approx(0.004)
    assert [pair.test.difference for _, pair in equal.tests] == pytest.approx([0.004, 0.004])
    assert equal.areas["gated"].mean - equal.areas["gmm"].mean == pytest.approx(0.004)
    (above,) = equal.above
    assert (above.first, above.second, above.share, above.beyond_intervals) == ("gated", "gmm", 1.0, True)


def test_by_default_it_is_read_at_the_highest_common_accuracy(two_curves: Path) -> None:
    equal = only(two_curves).equal
    assert equal is not None
    assert [one.at for one in equal.values] == pytest.approx([0.90, 0.90])


def test_an_accuracy_that_was_not_tried_is_not_covered(two_curves: Path) -> None:
    table = only(two_curves, at=(0.95,))
    assert table.equal is not None
    assert [one.value for one in table.equal.values] == [None, None]
    assert table.equal.tests == []
    assert any("gmm is not covered at 95.00 %: its strengths reach from 85.00 to 90.00 %." in n for n in table.notes)
    assert "not covered" in as_text(parts(comparison(two_curves, at=(0.95,))))


def test_curves_that_cross_are_told_with_their_share(tmp_path: Path, sweep: Make) -> None:
    cells = [
        {"method": method, "surrogate": method, "weight": weight, "seed": seed, "accuracy": accuracy, "mse": mse}
        for seed in (1, 2)
        for method, line in {"gmm": ((0.90, 0.02), (0.80, 0.04)), "gated": ((0.90, 0.01), (0.80, 0.07))}.items()
        for weight, (accuracy, mse) in zip((1.0, 2.0), line, strict=True)
    ]
    table = only(sweep(tmp_path / "sweep", cells))
    assert table.equal is not None
    (above,) = table.equal.above
    # gated - gmm goes from +0.03 at 0.80 to -0.01 at 0.90: above on three quarters of the range
    assert (above.first, above.second) == ("gated", "gmm")
    assert above.share == pytest.approx(0.75)
    assert not above.beyond_intervals


def test_methods_with_the_same_numbers_have_one_curve(tmp_path: Path, sweep: Make) -> None:
    def told_of(*methods: str) -> Part:
        cells = [
            {"method": method, "surrogate": method, "weight": weight, "seed": seed, "accuracy": 0.9 - weight / 100}
            | {"mse": weight / 50}
            for method in methods
            for weight in (1.0, 2.0)
            for seed in (1, 2)
        ]
        (part,) = parts(comparison(sweep(tmp_path / str(len(methods)), cells)))
        return part

    part = told_of("gmm", "gated")
    (told,) = [line for line in part.remarks if "have one curve" in line]
    assert told.endswith("have one curve (MSE) between 88.00 and 89.00 % accuracy.")
    assert not [line for line in part.remarks if "cross" in line]
    # of many a table tells it: none is more private than another anywhere
    (shares,) = [grid for grid in told_of("a", "b", "c", "d").grids if grid.caption.startswith("How much of their")]
    assert {word for row in shares.rows for word in row[1:]} == {"-", "0"}


def test_one_seed_has_no_intervals_to_lie_beyond(tmp_path: Path, sweep: Make) -> None:
    cells = [
        {"method": method, "surrogate": method, "weight": weight, "seed": 1, "accuracy": accuracy, "mse": mse}
        for method, line in {"gmm": ((0.90, 0.02), (0.80, 0.04)), "gated": ((0.90, 0.03), (0.80, 0.07))}.items()
        for weight, (accuracy, mse) in zip((1.0, 2.0), line, strict=True)
    ]
    found = comparison(sweep(tmp_path / "sweep", cells))
    (above,) = found.tables[0].equal.above  # type: ignore[union-attr]
    assert above.beyond_intervals is None
    told = [line for part in parts(found) for line in part.remarks if "more private" in line]
    assert told == [
        "gated is more private (MSE) than gmm between 80.00 and 90.00 % accuracy, "
        "without intervals, which need two shared seeds."
    ]


LINES = {  # accuracy and MSE at two strengths
    "a": ((0.90, 0.02), (0.80, 0.04)),
    "b": ((0.90, 0.01), (0.80, 0.07)),  # crosses a at 0.8750
    "c": ((0.90, 0.05), (0.80, 0.09)),  # above all
    "d": ((0.70, 0.05), (0.60, 0.09)),  # elsewhere
    "e": ((0.90, 0.01), (0.80, 0.03)),  # below a and c
}


def many(folder: Path, sweep: Make, names: str) -> Path:
    """With two seeds that differ by a hair."""
    return sweep(
        folder,
        [
            {"method": name, "surrogate": "gmm", "weight": weight, "seed": seed, "accuracy": accuracy}
            | {"mse": mse + seed * 1e-6, "settings": {"model": {"name": "tiny", "cut": 1 + place}}}
            for place, name in enumerate(names)
            for seed in (1, 2)
            for weight, (accuracy, mse) in zip((1.0, 2.0), LINES[name], strict=True)
        ],
    )


def test_many_curves_are_held_against_each_other_in_a_table(tmp_path: Path, sweep: Make) -> None:
    (part,) = parts(comparison(many(tmp_path / "s", sweep, "abcde")))
    (grid,) = [grid for grid in part.grids if "in %" in grid.caption]
    assert grid.head == ["method", "1", "2", "3", "4"]
    assert grid.rows == [
        ["1 a", "-", "25", "0", "100*"],
        ["2 b", "75", "-", "0", "100"],  # equal at one end: not beyond the interval there
        ["3 c", "100*", "100*", "-", "100*"],
        ["4 e", "0", "0", "0", "-"],
    ]  # d has no accuracies in common with the others
    assert not [line for line in part.remarks if "is more private" in line or "cross" in line]
    (few,) = parts(comparison(many(tmp_path / "few", sweep, "ac")))
    assert not [grid for grid in few.grids if "in %" in grid.caption]
    assert [line for line in few.remarks if line.startswith("c is more private (MSE) than a between 80.00 and 90.00 %")]


def test_names_with_commas_are_told_apart(tmp_path: Path, sweep: Make) -> None:
    rows = [
        {"method": f"{name}, faithful", "surrogate": name, "weight": weight, "seed": seed}
        | {"accuracy": 0.9 - weight / 100, "mse": 0.02 + weight / 1000}
        for name, weights in (("gmm", (1.0, 2.0)), ("rate", (1.0, 2.0)), ("gated", (1.0,)), ("enhanced", (1.0,)))
        for weight in weights
        for seed in (1, 2)
    ]
    (part,) = parts(comparison(sweep(tmp_path / "s", rows)))
    assert "One strength only, so no curve: enhanced, faithful; gated, faithful." in part.remarks


def test_the_area_is_over_what_most_curves_cover(tmp_path: Path, sweep: Make) -> None:
    found = comparison(many(tmp_path / "s", sweep, "abd"))
    (table,) = found.tables
    assert table.equal is not None
    assert table.equal.range == pytest.approx((0.80, 0.90))
    assert {name: area.mean for name, area in table.equal.areas.items()} == pytest.approx(
        {"a": 0.03 + 1.5e-6, "b": 0.04 + 1.5e-6}
    )
    (part,) = parts(found)
    assert "The area is over accuracies that these curves do not cover: d." in part.remarks
    (grid,) = [grid for grid in part.grids if grid.caption.startswith("MSE at equal")]
    assert next(row for row in grid.rows if row[0] == "d")[-1] == "-"


def test_no_interval_at_equal_accuracy_holds_a_negative_error(tmp_path: Path, sweep: Make) -> None:
    """Two seeds far apart have a wide interval; what an MSE cannot be is cut off, as in the table of cells."""
    cells = [
        {"method": method, "surrogate": method, "weight": weight, "seed": seed, "accuracy": accuracy}
        | {"mse": mse * (0.5 if seed == 1 else 1.5)}
        for seed in (1, 2)
        for method in ("gmm", "gated")
        for weight, accuracy, mse in ((1.0, 0.90, 0.02), (2.0, 0.80, 0.04))
    ]
    equal = only(sweep(tmp_path / "s", cells), at=(0.85,)).equal
    assert equal is not None
    for found in [*(one.value for one in equal.values), *equal.areas.values()]:
        assert found is not None
        assert found.low == 0.0
        # t(1) = 12.706; the two seeds contribute 0.015 and 0.045
        assert found.high == pytest.approx(0.03 + 12.706 * 0.015, rel=1e-3)


def test_very_many_tests_are_remarked_upon(tmp_path: Path, sweep: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    place = many(tmp_path / "s", sweep, "abcde")
    said = "tests at equal strength: after the correction for so many"
    assert not [line for part in parts(comparison(place)) for line in part.remarks if said in line]  # 40 of them
    monkeypatch.setattr(prose, "MANY_TESTS", 39)
    (line,) = [line for part in parts(comparison(place)) for line in part.remarks if said in line]
    assert line.startswith("40 tests")
    fewer = comparison(place, baseline="a")
    assert not [line for part in parts(fewer) for line in part.remarks if said in line]


def test_a_cell_dominates_only_beyond_the_intervals(tmp_path: Path, run: Make) -> None:
    for seed, shift in ((1, -1), (2, 0), (3, 1)):
        run(tmp_path / f"a{seed}", seed=seed, accuracy=0.90 + shift * 1e-3, mse=0.05 + shift * 1e-4)
        run(tmp_path / f"b{seed}", seed=seed, accuracy=0.80 + shift * 1e-3, mse=0.02 + shift * 1e-4, surrogate="gated")
        run(tmp_path / f"c{seed}", seed=seed, accuracy=0.895 + shift * 5e-2, mse=0.02, surrogate="rate")
        run(tmp_path / f"d{seed}", seed=seed, accuracy=0.899 + shift * 1e-3, mse=0.02, surrogate="slot_gated")
    found = [(one.first.split()[0], one.second.split()[0]) for one in only(tmp_path).dominates]
    assert found == [("gmm", "gated")]


def test_a_method_does_not_dominate_itself(tmp_path: Path, run: Make) -> None:
    for seed, shift in ((1, -1), (2, 0), (3, 1)):
        run(tmp_path / f"a{seed}", seed=seed, accuracy=0.90 + shift * 1e-3, mse=0.05 + shift * 1e-4)
        run(tmp_path / f"b{seed}", seed=seed, accuracy=0.80 + shift * 1e-3, mse=0.02 + shift * 1e-4, weight=8.0)
    assert only(tmp_path).dominates == []


def test_at_equal_strength_only_equal_strengths_meet(two_curves: Path) -> None:
    pairs = {(pair.first, pair.second) for pair in only(two_curves).tests}
    assert pairs == {(f"gated, weight {w}", f"gmm, weight {w}") for w in (4, 8, 16)}


def one_against_many(sweep: Make, root: Path, weights: tuple[float, ...], seeds: tuple[int, ...] = (1, 2)) -> Path:
    """A method at `weights` (without a surrogate where it is one weight), and `rate` at weights 8 and 32."""
    other = "gmm" if len(weights) > 1 else None
    cells: list[dict[str, Any]] = [
        {"method": "undefended", "surrogate": other, "weight": weight, "seed": seed, "mse": 0.01 + seed / 1e4}
        for weight in weights
        for seed in seeds
    ]
    cells += [
        {"method": "rate", "surrogate": "rate", "weight": weight, "seed": seed, "mse": 0.02 + weight / 1e3 + seed / 1e3}
        for weight in (8.0, 32.0)
        for seed in (1, 2)
    ]
    return sweep(root, cells)


def test_the_only_cell_of_a_method_faces_every_strength_of_another(tmp_path: Path, sweep: Make) -> None:
    table = only(one_against_many(sweep, tmp_path / "s", (16.0,)), baseline="undefended")
    found = {(pair.first, pair.second): pair.test for pair in table.tests if pair.measure == "mse"}
    assert set(found) == {(f"rate, weight {weight}", "undefended") for weight in (8, 32)}
    # (0.020 + 0.032 + seed/1000) - (0.010 + seed/10000), mean over the seeds 1 and 2
    assert found["rate, weight 32", "undefended"].difference == pytest.approx(0.042 + 1.5 * 0.0009)
    assert not [note for note in table.notes if note.startswith("No differences")]


@pytest.mark.parametrize(
    ("weights", "seeds", "why"),
    [((2.0, 4.0), (1, 2), "not tried at the same strength"), ((16.0,), (3, 4), "they share no seed")],
)
def test_methods_without_a_test_are_named_with_the_reason(
    tmp_path: Path, sweep: Make, weights: tuple[float, ...], seeds: tuple[int, ...], why: str
) -> None:
    table = only(one_against_many(sweep, tmp_path / "s", weights, seeds))
    assert table.tests == []
    (sentence,) = [note for note in table.notes if note.startswith("No differences")]
    assert "rate and undefended" in sentence
    assert why in sentence


def test_strengths_of_different_kinds_are_never_equal(tmp_path: Path, sweep: Make) -> None:
    """Dropout with p = 0.1 and the largest fifth of the values have no strength in common at which they could be held
    against each other."""
    cells = [
        {"method": next(iter(one)), "surrogate": None, "seed": seed, "mse": 0.02 + seed / 1e3}
        | {"settings": {"defence": {**one, "noise": {"sigma": 0.1}}}}
        for one in ({"dropout": {"p": 0.1}}, {"dropout": {"p": 0.3}}, {"topk": {"keep": 0.2}}, {"topk": {"keep": 0.4}})
        for seed in (1, 2)
    ]
    table = only(sweep(tmp_path / "s", cells))
    assert len(table.summaries) == 4
    assert table.tests == []
    (sentence,) = [note for note in table.notes if note.startswith("No differences")]
    assert "not tried at the same strength" in sentence


def test_the_better_curve_is_named_first(tmp_path: Path, sweep: Make) -> None:
    cells = [
        {"method": m, "surrogate": s, "weight": w, "seed": k, "accuracy": 0.9 - w / 100, "mse": w / 100 + gain}
        for m, s, gain in (("a", "gmm", 0.0), ("b", "gated", 0.02))
        for w in (1.0, 2.0)
        for k in (1, 2)
    ]
    table = only(sweep(tmp_path / "sweep", cells))
    assert table.equal is not None
    assert [(one.first, one.second, one.share) for one in table.equal.above] == [("b", "a", 1.0)]


@pytest.mark.parametrize(("jitter", "beyond"), [(0.001, True), (0.01, False)])
def test_a_curve_lies_beyond_the_intervals_where_the_whole_interval_of_the_difference_does(
    tmp_path: Path, sweep: Make, jitter: float, beyond: bool
) -> None:
    """The differences are 0.005 + jitter·(-1, 0, 1): half of the interval is t(2)·jitter/√3 = 2.48·jitter."""
    cells = [
        {"method": m, "surrogate": s, "weight": w, "seed": k, "accuracy": 0.9 - w / 100, "mse": w / 100 + gain(k)}
        for m, s, gain in (("a", "gmm", lambda k: 0.0), ("b", "gated", lambda k: 0.005 + jitter * (k - 2)))
        for w in (1.0, 2.0)
        for k in (1, 2, 3)
    ]
    equal = only(sweep(tmp_path / "sweep", cells)).equal
    assert equal is not None
    assert [(one.first, one.share, one.beyond_intervals) for one in equal.above] == [("b", 1.0, beyond)]


@pytest.mark.parametrize(
    ("measure", "weak", "strong", "gain"),
    [
        ("mse", 0.02, 0.03, 0.004),  # a reconstruction that is further off is more private ...
        ("ssim", 0.6, 0.5, -0.04),  # ... and so is one that is less alike,
        ("psnr", 20.0, 18.0, -0.8),
        ("psnr_batch", 20.0, 18.0, -0.8),
        ("recon_acc", 0.4, 0.3, -0.04),  # or that the victim names less often
    ],
)
def test_every_measure_knows_which_way_is_more_private(
    tmp_path: Path, sweep: Make, audit: Any, measure: str, weak: float, strong: float, gain: float
) -> None:
    cells = []
    for method, more, better in (("a", 0.0, 0.0), ("b", 0.01, gain)):
        for weight, accuracy, value in ((1.0, 0.9, weak), (2.0, 0.8, strong)):
            for seed in (1, 2, 3):
                entry = {"mse": 0.02, "ssim": 0.5, "psnr": 17.0} | {measure: (value + better) * (1 + seed / 1e3)}
                cells.append({
                    "method": method, "surrogate": "gmm" if method == "a" else "gated", "weight": weight, "seed": seed,
                    "accuracy": accuracy + more + seed / 1e4, "audit": audit(0.02, attacks={"decoder": entry}),
                })  # fmt: skip
    table = only(sweep(tmp_path / "sweep", cells), measure=measure, attacks=("decoder",))
    assert table.equal is not None
    assert [len(curve.points) for curve in table.equal.curves.values()] == [2, 2]  # the stronger is the more private
    assert [(one.first, one.second, one.share) for one in table.equal.above] == [("b", "a", 1.0)]
    assert {(one.first[0], one.second[0]) for one in table.dominates} == {("b", "a")}


def test_an_interval_over_pictures_claims_no_dominance() -> None:
    def summary(method: str, accuracy: float, mse: float, over: str) -> Summary:
        near, cell = 1e-4, Cell(method, {}, (), True)
        leak = Estimate(mse, 3, near, mse - near, mse + near, over)
        known = Estimate(accuracy, 3, near, accuracy - near, accuracy + near, "seeds")
        return Summary(cell, known, {"decoder": {"mse": leak}}, {})

    for first, second, claims in (("seeds", "seeds", 1), ("pictures", "seeds", 0), ("seeds", "pictures", 0)):
        found = cell_dominance(
            [summary("a", 0.9, 0.05, first), summary("b", 0.8, 0.02, second)], "decoder", MEASURES["mse"]
        )
        assert len(found) == claims


def test_one_seed_claims_no_dominance_and_no_test(tmp_path: Path, run: Make) -> None:
    run(tmp_path / "a", accuracy=0.9, mse=0.05)
    run(tmp_path / "b", accuracy=0.5, mse=0.01, surrogate="gated")
    table = only(tmp_path)
    assert table.dominates == []
    assert all(pair.test.p_t is None for pair in table.tests)
    assert "Every cell has one seed: no spread over seeds; an interval there is over pictures." in table.notes
    assert "1 shared seed: no test is possible." in table.notes
    assert table.summaries[0].leaks["worst_case"]["mse"].over == "pictures"


def test_a_single_run_is_a_comparison_too(tmp_path: Path, run: Make) -> None:
    text = as_text(parts(comparison(run(tmp_path / "one"))))
    assert "gmm (corrected)" in text
    assert "85.00" in text
    assert "No interpolation at equal accuracy" in text


def test_values_that_are_not_numbers_leave_fewer_seeds(tmp_path: Path, run: Make) -> None:
    run(tmp_path / "a", seed=1)
    run(tmp_path / "b", seed=2, accuracy=None)
    table = only(tmp_path)
    accuracy, mse = table.summaries[0].accuracy, table.summaries[0].get("worst_case", "mse")
    assert accuracy is not None
    assert mse is not None
    assert (accuracy.n, mse.n) == (1, 2)
    assert (mse.over, accuracy.over) == ("seeds", "")
    assert [note for note in table.notes if "runs only" in note] == ["gmm (corrected): accuracy of 1 of 2 runs only."]


def test_a_measure_that_a_run_lacks_is_told(tmp_path: Path, run: Make) -> None:
    run(tmp_path / "a", seed=1)
    place = run(tmp_path / "b", seed=2) / "audit" / "audit.json"
    tree = json.loads(place.read_text())
    tree["worst_case"]["mse"] = None
    place.write_text(json.dumps(tree))
    table = only(tmp_path)
    mse = table.summaries[0].get("worst_case", "mse")
    assert mse is not None
    assert mse.n == 1
    assert "gmm (corrected): MSE of 1 of 2 runs only." in table.notes
    assert not [note for note in only(tmp_path, measure="ssim").notes if "runs only" in note]


def test_the_interval_over_pictures_is_that_of_the_run_that_has_the_number(
    tmp_path: Path, run: Make, audit: Any
) -> None:
    tree = audit(0.04)
    tree["worst_case"] = {"ssim": 0.4}
    run(tmp_path / "a", seed=1, audit=tree)
    run(tmp_path / "b", seed=2, mse=0.05)
    mse = only(tmp_path).summaries[0].get("worst_case", "mse")
    assert mse is not None
    assert (mse.n, mse.over, mse.interval) == (1, "pictures", pytest.approx((0.0485, 0.0515)))


def test_too_few_seeds_are_told_in_the_table(two_curves: Path) -> None:
    assert any("cannot go below p = 0.25" in note for note in only(two_curves).notes)


def test_a_baseline_leaves_out_the_other_pairs(two_curves: Path, tmp_path: Path, run: Make) -> None:
    for seed in (1, 2, 3):
        run(tmp_path / "more" / f"r{seed}", seed=seed, surrogate="rate", weight=8.0)
    everything = {(pair.first.split(",")[0], pair.second.split(",")[0]) for pair in only(tmp_path).tests}
    assert everything == {("gated", "gmm"), ("gated", "rate (corrected)"), ("gmm", "rate (corrected)")}
    against = {pair.second.split(",")[0] for pair in only(tmp_path, baseline="gmm").tests}
    assert against == {"gmm"}
    with pytest.raises(UnknownNameError, match="no method called 'gm'"):
        comparison(tmp_path, baseline="gm")


def test_pairs_are_tested_in_the_order_given_and_no_others(two_curves: Path, tmp_path: Path, run: Make) -> None:
    for seed, accuracy in ((1, 0.871), (2, 0.879), (3, 0.874)):
        run(tmp_path / "more" / f"r{seed}", seed=seed, surrogate="rate", weight=8.0, accuracy=accuracy)
    table = only(tmp_path, pairs=(("gmm", "gated"), ("rate (corrected)", "gmm")))
    assert {(pair.first.split(",")[0], pair.second.split(",")[0]) for pair in table.tests} == {
        ("gmm", "gated"),
        ("rate (corrected)", "gmm"),
    }
    assert table.equal is not None
    ((_, at_equal),) = table.equal.tests  # rate has one strength, so no curve
    assert (at_equal.first, at_equal.second) == ("gmm", "gated")
    assert at_equal.test.difference == pytest.approx(-0.004)
    assert at_equal.test.p_t_holm == at_equal.test.p_t  # a family of one
    # three strengths face each other, and one of rate: two measures each
    p = [pair.test.p_t for pair in table.tests if pair.test.p_t is not None]
    assert len(table.tests) == 2 * (3 + 1)
    smallest = min(table.tests, key=lambda pair: pair.test.p_t if pair.test.p_t is not None else 2.0)
    assert smallest.test.p_t_holm == pytest.approx(min(1.0, len(p) * min(p)))


def test_one_name_for_several_variants_stands_for_those_that_agree(tmp_path: Path, sweep: Make) -> None:
    place = sweep(
        tmp_path / "s",
        [
            {
                "method": name,
                "seed": seed,
                "surrogate": None if name == "none" else name,
                "settings": {"model": {"name": "vgg11", "cut": cut}},
                "accuracy": 0.87 + 0.001 * seed,
            }
            for cut in (2, 4)
            for name in ("gmm", "gated", "none")
            for seed in (1, 2)
        ],
    )

    def tested(**options: Any) -> list[tuple[str, str]]:
        return [(pair.first, pair.second) for pair in only(place, **options).tests if pair.measure == "mse"]

    at = "{0} [model.cut={2}]|{1} [model.cut={2}]".format
    gmm, gated = ([tuple(at(name, "none", cut).split("|")) for cut in (2, 4)] for name in ("gmm", "gated"))
    assert tested(baseline="none") == [*gated, *gmm]
    assert tested(pairs=(("gmm", "none"),)) == gmm
    assert tested(pairs=(("gmm [model.cut=4]", "none"), ("gated", "none"))) == [gmm[1], *gated]
    across = ("gmm [model.cut=2]", "none [model.cut=4]")
    assert across in tested(baseline=across[1])
    assert tested(pairs=(across,)) == [across]  # whoever writes both names out means these two
    assert not [note for note in comparison(place, pairs=(("gmm", "none"),)).notes if "no finished run" in note]


def test_pairs_without_runs_are_named_and_the_others_tested(two_curves: Path) -> None:
    found = comparison(two_curves, pairs=(("gated", "gmm"), ("gated", "collapsed"), ("other", "collapsed")))
    assert "Not tested, because no finished run is here: collapsed; other." in found.notes
    assert {pair.second.split(",")[0] for pair in found.tables[0].tests} == {"gmm"}


def test_pairs_and_baseline_exclude_each_other_and_a_pair_has_two_methods() -> None:
    with pytest.raises(UsageError, match="cannot both say"):
        View(baseline="a", pairs=(("a", "b"),))
    with pytest.raises(UsageError, match="against itself"):
        View(pairs=(("a", "a"),))
    with pytest.raises(UsageError, match="'b' and 'a' are named as a pair twice"):
        View(pairs=(("a", "b"), ("c", "b"), ("b", "a")))


def unsettled(two_curves: Path, gap: float) -> Path:
    """The attacked weights of every run of `gated` are `gap` more accurate than the mean of the last epochs."""
    for file in two_curves.glob("cells/*/result.json"):
        result = json.loads(file.read_text())
        gated = 'name = "gated"' in (file.parent / "config.toml").read_text()
        result["accuracy_kept"] = result["accuracy_late"] + (gap if gated else 0.0)
        file.write_text(json.dumps(result))
    return two_curves


def test_attacked_weights_far_off_the_last_epochs_are_told(two_curves: Path) -> None:
    place = unsettled(two_curves, 0.0099)
    assert not [note for note in only(place).notes if "attacked weights" in note]
    first = min(unsettled(place, 0.02).glob("cells/*/result.json"))  # one run is further off than the others
    result = json.loads(first.read_text())
    first.write_text(json.dumps(result | {"accuracy_kept": result["accuracy_late"] - 0.05}))
    (note,) = [note for note in only(place).notes if "attacked weights" in note]
    runs = 9 + ('name = "gmm"' in (first.parent / "config.toml").read_text())
    assert note.startswith(f"In {runs} of 18 runs the accuracy of the attacked weights is more than a point off")
    late = 100 * result["accuracy_late"]
    assert f", {late - 5:.1f} % and {late:.1f} %)" in note


def test_the_accuracy_of_the_attacked_weights_may_count(two_curves: Path, tmp_path: Path) -> None:
    place = unsettled(two_curves, 0.02)
    late, kept = only(place), only(place, accuracy="kept")
    assert [one.accuracy.mean for one in late.summaries if one.accuracy] == pytest.approx(2 * [0.90, 0.88, 0.85])
    shown = [one.accuracy.mean for one in kept.summaries if one.accuracy]
    assert shown == pytest.approx([0.92, 0.90, 0.87, 0.90, 0.88, 0.85])
    assert "Accuracy is that of the attacked weights." in kept.notes
    # gated: .034 at 90 %, where gmm has .020
    (difference,) = [pair.test.difference for _, pair in only(place, accuracy="kept", at=(0.9,)).equal.tests]  # type: ignore[union-attr]
    assert difference == pytest.approx(0.034 - 0.020)
    # a file keeps both
    found = collect([place])
    (tmp_path / "data.json").write_text(data_text(DataFile(compare(found.records, View(accuracy="kept")).records)))
    again = collect([tmp_path / "data.json"]).records
    assert compare(again).tables[0].summaries == late.summaries
    assert compare(again, View(accuracy="kept")).tables[0].summaries[0].accuracy == kept.summaries[0].accuracy
    # runs that do not know it count with the other
    for file in list(place.glob("cells/*/result.json"))[:3]:
        file.write_text(json.dumps({"accuracy_late": 0.88}))
    assert any("3 of 18 runs do not know it" in note for note in only(place, accuracy="kept").notes)
    with pytest.raises(UsageError, match="no accuracy called 'best'"):
        View(accuracy="best")


def test_different_numbers_of_strengths_are_told(two_curves: Path, tmp_path: Path, run: Make) -> None:
    assert not [note for note in only(two_curves).notes if note.startswith("Strengths tried per method")]
    for weight, accuracy in ((8.0, 0.89), (16.0, 0.86)):
        run(tmp_path / "more" / f"w{weight}", surrogate="rate", weight=weight, accuracy=accuracy)
    (note,) = [note for note in only(tmp_path).notes if note.startswith("Strengths tried per method")]
    assert note.startswith("Strengths tried per method: 2 (rate (corrected)), 3 (gated; gmm). ")


def test_holm_counts_the_tests_of_one_table(two_curves: Path, tmp_path: Path, run: Make) -> None:
    for seed, accuracy in ((1, 0.871), (2, 0.879), (3, 0.874)):
        run(tmp_path / "more" / f"r{seed}", seed=seed, surrogate="rate", weight=8.0, accuracy=accuracy)
    table = only(tmp_path, at=(0.87, 0.88))
    assert table.equal is not None
    assert {pair.measure for pair in table.tests} == {"accuracy", "mse"}
    assert {at for at, _ in table.equal.tests} == {0.87, 0.88}
    known = [pair.test for pair in table.tests if pair.test.p_t is not None]
    smallest = min(known, key=lambda test: test.p_t or 0.0)
    assert smallest.p_t_holm == pytest.approx(min(1.0, len(known) * (smallest.p_t or 0.0)))
    # one pair of curves at two accuracies, three seeds that agree: 2 x 0.25
    assert [pair.test.p_exact_holm for _, pair in table.equal.tests] == [0.5, 0.5]


def test_the_interval_at_equal_accuracy_lies_around_the_value_when_a_cell_lacks_a_seed(
    tmp_path: Path, sweep: Make
) -> None:
    values = {(1.0, 0.9): {1: 0.010, 2: 0.012, 3: 0.020}, (2.0, 0.8): {1: 0.030, 2: 0.032}}
    cells = [
        {"method": name, "surrogate": name, "weight": weight, "seed": seed, "accuracy": accuracy, "mse": mse}
        for name in ("gmm", "gated")
        for (weight, accuracy), runs in values.items()
        for seed, mse in runs.items()
    ]
    equal = only(sweep(tmp_path / "sweep", cells), at=(0.85,)).equal
    assert equal is not None
    for one in equal.values:
        assert one.value is not None
        assert one.value.mean == pytest.approx((0.014 + 0.031) / 2)  # of all runs
        # seeds 1 and 2, which both cells have, give 0.020 and 0.022: t(1)·sd/√2 = 12.706·0.001
        assert one.value.interval == pytest.approx((0.0225 - 0.012706, 0.0225 + 0.012706), rel=1e-4)


# the differences have a standard deviation of 0.0035: two standard errors of their mean are 0.0041
@pytest.mark.parametrize(("step", "told"), [(0.02, False), (0.0055, False), (0.004, True), (0.0005, True)])
def test_strengths_that_the_seeds_do_not_tell_apart_are_named(
    tmp_path: Path, sweep: Make, step: float, told: bool
) -> None:
    noise = {1: (0.001, -0.002), 2: (-0.003, 0.001), 3: (0.002, 0.002)}  # per seed, of the two strengths
    cells = [
        {"method": m, "surrogate": s, "weight": w, "seed": k, "accuracy": 0.9 - place * gap + noise[k][place], "mse": w}
        for m, s, gap in (("a", "gmm", step), ("b", "gated", 0.02))
        for place, w in enumerate((0.01, 0.02))
        for k in noise
    ]
    table = only(sweep(tmp_path / "sweep", cells))
    found = [note for note in table.notes if "same accuracy within the spread" in note]
    assert [("a (" in note, "b (" in note) for note in found] == ([(True, False)] if told else [])


def test_the_order_of_the_paths_changes_nothing(two_curves: Path, tmp_path: Path, run: Make) -> None:
    extra = [run(tmp_path / "x" / name, seed=seed, surrogate="rate") for name, seed in (("b", 1), ("a", 2))]
    twin = run(tmp_path / "y" / "twin", seed=1, surrogate="rate", accuracy=0.7, ended="2027-01-01")
    other = run(tmp_path / "z", revision="bbbb")
    paths = [two_curves, *extra, twin, other]
    outputs = set()
    # each path at each place, and each before and after each other
    for order in (way[turn:] + way[:turn] for way in (paths, paths[::-1]) for turn in range(len(paths))):
        found = comparison(*order)
        outputs.add(write_as("json", found, None, DataFile(found.records)) + as_text(parts(found)))
    assert len(outputs) == 1


def test_groups_and_attacks_have_a_table_each(tmp_path: Path, run: Make, put: Callable[..., None], audit: Any) -> None:
    folder = run(tmp_path / "one")
    put(folder / "audit-inference_time" / "audit.json", audit(0.05, mode="inference_time"))
    found = comparison(tmp_path, attacks=("decoder", "linear"))
    assert [(table.group.setting.mode, table.attack) for table in found.tables] == [
        ("inference_time", "decoder"),
        ("inference_time", "linear"),
        ("training_time", "decoder"),
        ("training_time", "linear"),
    ]
    assert len(found.records) == 2


def test_unattacked_runs_are_compared_by_accuracy(tmp_path: Path, run: Make) -> None:
    for seed in (1, 2):
        run(tmp_path / f"a{seed}", seed=seed, mse=None)
        run(tmp_path / f"b{seed}", seed=seed, mse=None, surrogate="gated", accuracy=0.8 + seed / 100)
    table = only(tmp_path)
    assert {pair.measure for pair in table.tests} == {"accuracy"}
    assert "These runs have not been attacked: only accuracy is compared." in table.notes
    assert "MSE" not in as_text(parts(comparison(tmp_path)))


@pytest.mark.parametrize(
    ("view", "sentence"),
    [
        ({"at": (float("nan"),)}, "--at nan is not an accuracy between 0 and 1. For 88 % write 0.88."),
        ({"at": (88.0,)}, "--at 88 is not an accuracy between 0 and 1. For 88 % write 0.88."),
    ],
)
def test_a_wrong_view_is_a_usage_error(view: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        View(**view)
    assert sentence in str(caught.value)


def test_an_attack_that_no_audit_has(two_curves: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"Did you mean 'decoder'"):
        comparison(two_curves, attacks=("decodr",))


def test_the_measure_may_be_another_one(two_curves: Path) -> None:
    text = as_text(parts(comparison(two_curves, measure="ssim")))
    assert "SSIM at equal accuracy" in text


def test_views_survive_a_file() -> None:
    for against in ({"baseline": "gmm"}, {"pairs": (("gmm", "gated"), ("gmm", "none"))}):
        view = View(("decoder",), "ssim", (0.88, 0.9), **against, mix_versions=True)  # type: ignore[arg-type]
        assert View.of(json.loads(json.dumps(view.plain()))) == view
    assert View().plain() == {}
    assert View.of({}) == View()


# The forms


def test_markdown_has_a_table_per_question(two_curves: Path) -> None:
    text = as_markdown(parts(comparison(two_curves)))
    assert text.startswith("## cifar10, training-time, worst case over all attacks")
    assert "| gmm | weight 8 | 3 | 88.00 ± 0.09 [87.78, 88.22] | 0.03000 ± " in text
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.endswith("|")
    heads = [line for line in text.splitlines() if line.startswith("| method") or "first - second" in line]
    assert len(heads) == 5


def test_markdown_cannot_be_broken_by_a_name() -> None:
    assert escape_markdown("a|b") == r"a\|b"
    assert escape_markdown("<script>") == "&lt;script>"
    assert escape_markdown("[x](javascript:y)") == r"[x]\(javascript:y)"
    assert escape_markdown("slot_gated _x_") == r"slot_gated \_x\_"


def test_latex_is_booktabs_and_escaped(two_curves: Path) -> None:
    text = as_latex(parts(comparison(two_curves)))
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == text.count(r"\toprule") == 5
    assert r"88.00 $\pm$ 0.09 {[}87.78, 88.22{]}" in text
    rows = [line for line in text.splitlines() if line.endswith(r"\\") and "weight" in line]
    assert {row.count("&") for row in rows if row.startswith("gmm & weight")} == {6}
    for line in text.splitlines():
        assert "%" not in line.replace(r"\%", "") or line.startswith("% ")


def test_latex_escapes_what_it_would_act_on() -> None:
    assert escape_latex(r"50 % of a_b & c\d~{x}") == r"50 \% of a\_b \& c\textbackslash{}d\textasciitilde{}\{x\}"
    assert escape_latex("λ=16, θ ≥ .1") == r"$\lambda$=16, $\theta$ $\geq$ .1"  # pdflatex knows no such characters
    assert escape_latex("a|b") == r"a\textbar{}b"  # the usual encoding of fonts prints a bar as a dash


@pytest.mark.parametrize(
    ("words", "written"),
    [
        ("-0.02 [-0.03, -0.01]", "$-$0.02 {[}$-$0.03, $-$0.01{]}"),
        ("0.0389-0.0396, 71 - 73, 1e-05, gmm-2, -", "0.0389-0.0396, 71 - 73, 1e-05, gmm-2, -"),
        ("--at -1, a---b", "-{}-at $-$1, a-{}-{}-b"),
    ],
)
def test_in_latex_a_negative_number_has_a_minus_and_hyphens_stay_hyphens(words: str, written: str) -> None:
    assert escape_latex(words) == written


def test_a_latex_table_is_no_wider_than_the_text(two_curves: Path) -> None:
    first, *lines = as_latex(parts(comparison(two_curves))).splitlines()
    assert first == r"% needs \usepackage{booktabs,graphicx}"
    opened = [line for line in lines if r"\begin{tabular}" in line]
    assert len(opened) == lines.count(r"\end{tabular}}") == 5
    for line in opened:
        scaled, columns = line.split(r"{\begin{tabular}")
        assert scaled == r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}"
        assert set(columns) == set("{l}")


def test_a_latex_table_that_no_page_would_hold_comes_in_pieces() -> None:
    def tables(count: int) -> list[str]:
        rows = [[f"row {number}"] for number in range(count)]
        return as_latex([Part("T", grids=[Grid("C", ["a"], rows)], remarks=["Few seeds."])]).split(r"\begin{table}")[1:]

    (whole,) = tables(40)
    assert r"\caption{T. C.}" in whole
    pieces = tables(81)
    assert [line for piece in pieces for line in piece.splitlines() if line.startswith("row")] == [
        rf"row {number} \\" for number in range(81)
    ]
    assert [piece.count("\nrow") for piece in pieces] == [40, 40, 1]
    assert all(rf"\caption{{T. C ({place} of 3).}}" in piece for place, piece in enumerate(pieces, start=1))
    assert ["Few seeds." in piece for piece in pieces] == [True, False, False]
    (empty,) = tables(0)
    assert r"\bottomrule" in empty


def test_text_columns_line_up() -> None:
    text = as_text([Part("T", ["Intro."], [Grid("C", ["a", "bb"], [["long", "1"], ["s", "22"]])], ["Remark."])])
    assert text == "T\n=\nIntro.\n\nC:\na     bb\n----  --\nlong  1\ns     22\n\n- Remark.\n"


def test_csv_has_every_attack_and_measure(two_curves: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(comparison(two_curves)))))
    one = [r for r in rows if r["method"] == "gmm" and r["strength"] == "weight 8"]
    assert {(r["attack"], r["measure"]) for r in one} >= {("", "accuracy"), ("decoder", "recon_acc"), ("linear", "mse")}
    worst = next(r for r in one if (r["attack"], r["measure"]) == ("worst_case", "mse"))
    assert (float(worst["mean"]), worst["n"], worst["interval_over"]) == (0.03, "3", "seeds")
    assert float(worst["low"]) < 0.03 < float(worst["high"])


@pytest.mark.parametrize("name", ["=SUM(1,2)", "+1", "-1", "@now"])
def test_csv_holds_no_formula(tmp_path: Path, sweep: Callable[..., Path], name: str) -> None:
    root = sweep(tmp_path / "sweep", [{"method": name}, {"method": "a=b", "surrogate": "gated"}])
    rows = list(csv.DictReader(io.StringIO(as_csv(comparison(root)))))
    assert {row["method"] for row in rows} == {f"'{name}", "a=b"}


def test_json_says_what_the_tables_say(two_curves: Path) -> None:
    tree = as_tree(comparison(two_curves, at=(0.88,)))
    (table,) = tree["tables"]
    cell = next(c for c in table["cells"] if c["method"] == "gmm" and c["strength"] == {"train.privacy_weight": 8.0})
    assert cell["leaks"]["mse"]["mean"] == 0.03
    assert table["equal_accuracy"]["values"][0] == {
        "method": "gated",
        "at": 0.88,
        "covered": True,
        "value": pytest.approx(table["equal_accuracy"]["values"][0]["value"]),
    }
    json.dumps(tree, allow_nan=False)


@pytest.mark.parametrize(
    ("name", "out", "form"),
    [
        (None, None, "text"),
        (None, "a.md", "markdown"),
        (None, "a.tex", "latex"),
        (None, "a.csv", "csv"),
        (None, "a.json", "json"),
        ("latex", "a.md", "latex"),
    ],
)
def test_the_suffix_chooses_the_form(name: str | None, out: str | None, form: str) -> None:
    assert choose_format(name, None if out is None else Path(out)) == form


def test_unknown_forms_are_usage_errors() -> None:
    with pytest.raises(UsageError, match="Did you mean 'markdown'"):
        choose_format("markdwn", None)
    with pytest.raises(UsageError, match=r"end in '\.docx'"):
        choose_format(None, Path("a.docx"))


def test_remarks_are_in_the_printed_table_not_only_in_comments() -> None:
    grid = Grid("Numbers", ["a"], [["1"]])
    text = as_latex(
        [Part("Of the runs", remarks=["x_1 was left out."]), Part("T", ["Same 50 %."], [grid], ["Few seeds."])]
    )
    shown = [line for line in text.splitlines() if not line.startswith("%")]
    assert any(r"x\_1 was left out." in line for line in shown)
    inside = "\n".join(shown).split(r"\end{tabular}")[1].split(r"\end{table}")[0]
    assert r"Same 50 \%. Few seeds." in inside


def test_methods_that_gave_the_very_same_numbers_are_named(tmp_path: Path, sweep: Make) -> None:
    cells = [
        {"method": m, "surrogate": s, "seed": k, "accuracy": 0.9 + k / 100, "mse": 0.01 * k + more}
        for m, s, more in (("idle", "gmm", 0.0), ("plain", None, 0.0), ("works", "gated", 0.001))
        for k in (1, 2)
    ]
    found = [note for note in only(sweep(tmp_path / "sweep", cells)).notes if "very same numbers" in note]
    assert found == ["The very same numbers with every seed, so that what differs did nothing: idle and plain."]


def test_equal_accuracies_alone_do_not_make_two_methods_the_same(tmp_path: Path, run: Make) -> None:
    run(tmp_path / "a", surrogate="gmm", accuracy=0.77, mse=None)
    run(tmp_path / "b", surrogate="gated", accuracy=0.77, mse=None)
    (table,) = comparison(tmp_path).tables
    assert not [note for note in table.notes if "very same numbers" in note]
