"""Measures that audits were given beside ours stand in every table, and methods can be compared by them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from splitveil.cli.compare import compare as command
from splitveil.core.errors import UsageError
from splitveil.experiments.compare.collect import collect
from splitveil.experiments.compare.comparison import Comparison, compare
from splitveil.experiments.compare.data_file import DataFile, data_text
from splitveil.experiments.compare.machine import as_csv, as_tree
from splitveil.experiments.compare.prose import parts
from splitveil.experiments.compare.render import as_latex, as_markdown, as_text
from splitveil.experiments.compare.view import View
from splitveil.report.charts.paper import frontier_figure

Make = Callable[..., Path]


def taken(value: float, *, larger: bool | None = True, worst: bool = True) -> dict[str, Any]:
    """What audit.json says of one measure."""
    entry: dict[str, Any] = {
        "larger_is_private": larger,
        "floor": {"mean_image": {"mean": 250.0, "ci95": [240.0, 260.0]}},
        "attacks": {
            "decoder": {"mean": value * 1.1, "ci95": [value, value * 1.2]},
            "linear": {"mean": value * 2, "ci95": None},
        },
    }
    return entry | ({"worst_case": {"mean": value, "ci95": [value * 0.9, value * 1.1]}} if worst else {})


@pytest.fixture
def measured(tmp_path: Path, sweep: Make, audit: Any) -> Callable[..., Path]:
    """Two methods, two strengths, three seeds. The stronger leaks less, and `gated` less than `gmm` by 10."""

    def make(name: str = "edges", *, larger: bool = True, **others: Any) -> Path:
        cells = []
        for method, gain in (("gmm", 0.0), ("gated", 10.0)):
            for weight, accuracy, far in ((4.0, 0.90, 100.0), (16.0, 0.80, 140.0)):
                for seed in (1, 2, 3):
                    distance = far + gain + seed / 10
                    value = distance if larger else -distance
                    tree = audit(0.02, extra={name: taken(value, larger=larger, **others)})
                    cells.append({
                        "method": method, "surrogate": method, "weight": weight, "seed": seed,
                        "accuracy": accuracy + seed / 1e4, "audit": tree,
                    })  # fmt: skip
        return sweep(tmp_path / "sweep", cells)

    return make


def of(*paths: Path, **view: Any) -> Comparison:
    found = collect(list(paths))
    return compare(found.records, View(**view), found.notes)


def test_a_measure_of_the_audits_own_stands_in_every_form(measured: Callable[..., Path]) -> None:
    found = of(measured())
    for write in (as_text, as_markdown, as_latex):
        text = write(parts(found))
        assert "edges of guessing the mean picture: 250." in text
        assert "100.2 ± 0.1" in text.replace(r"$\pm$", "±")
    head = as_text(parts(found)).splitlines()
    assert any(line.startswith("method") and line.endswith("edges") for line in head)
    rows = list(csv.DictReader(io.StringIO(as_csv(found))))
    means = {(row["method"], row["attack"]): float(row["mean"]) for row in rows if row["measure"] == "edges"}
    assert {attack for _, attack in means} == {"worst_case", "decoder", "linear"}
    assert means["gated", "linear"] == pytest.approx(2 * 150.2)  # the stronger strength stands last
    leaks = as_tree(found)["tables"][0]["cells"][0]["leaks"]
    assert leaks["edges"]["mean"] == pytest.approx(110.2)


@pytest.mark.parametrize("larger", [True, False])
def test_methods_are_compared_by_it_in_the_direction_that_the_audits_say(
    measured: Callable[..., Path], larger: bool
) -> None:
    found = of(measured(larger=larger), measure="edges", at=(0.85,))
    (table,) = found.tables
    assert table.equal is not None
    assert [len(curve.points) for curve in table.equal.curves.values()] == [2, 2]  # the stronger is the more private
    ((_, pair),) = table.equal.tests
    assert pair.measure == "edges"
    assert pair.test.difference == pytest.approx(10 if larger else -10)
    assert [(one.first, one.second, one.share) for one in table.equal.above] == [("gated", "gmm", 1.0)]
    for one in table.equal.values:
        assert one.value is not None
        assert one.value.low is not None
        assert one.value.high is not None
        assert one.value.low < one.value.mean < one.value.high  # not cut off at 0, where an error ends
    text = as_text(parts(found))
    assert "edges at equal accuracy [95 % interval over seeds]" in text
    assert "gated is more private (edges) than gmm" in text


def test_an_interval_of_one_run_is_the_audits_and_is_not_clipped(tmp_path: Path, run: Make, audit: Any) -> None:
    entry = taken(-5.0)
    entry["worst_case"]["ci95"] = [-5.5, -4.5]
    run(tmp_path / "a", audit=audit(0.02, extra={"edges": entry}))
    ((one,),) = [table.summaries for table in of(tmp_path).tables]
    found = one.get("worst_case", "edges")
    assert found is not None
    assert (found.mean, found.interval, found.over) == (-5.0, (-5.5, -4.5), "pictures")


def test_one_with_the_name_of_a_finding_is_not_cut_off_where_that_ends(measured: Callable[..., Path]) -> None:
    """The share of members found lies between 0 and 1; a function of somebody's own, called `rate`, need not."""
    (table,) = of(measured("rate")).tables
    found = table.summaries[0].get("worst_case", "rate")
    assert found is not None
    assert found.interval == pytest.approx((109.95, 110.45), abs=0.01)


def test_a_data_file_keeps_them(measured: Callable[..., Path], tmp_path: Path) -> None:
    found = of(measured(larger=False), measure="edges")
    file = tmp_path / "data.json"
    file.write_text(data_text(DataFile(found.records, view=found.view.plain())), encoding="utf-8")
    again = of(file, measure="edges")
    assert as_tree(again) == as_tree(found)
    assert as_text(parts(again)) == as_text(parts(found))


def test_a_data_file_without_them_says_nothing_of_them(two_curves: Path) -> None:
    runs = json.loads(data_text(DataFile(of(two_curves).records)))["runs"]
    assert not any("extra" in run for run in runs)


def test_the_command_takes_the_measure_and_draws_it(
    measured: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = tmp_path / "f.svg"
    command([measured("<edges>")], measure="<edges>", figure=figure)
    assert "<edges> at equal accuracy" in capsys.readouterr().out
    assert "&lt;edges&gt; (more private to the right)" in figure.read_text()
    assert "<edges>" not in frontier_figure(of(tmp_path / "sweep", measure="<edges>"))


def test_a_measure_that_no_audit_has(measured: Callable[..., Path]) -> None:
    folder = measured()
    with pytest.raises(UsageError, match=r"no measure called 'edgs'. Did you mean 'edges'"):
        of(folder, measure="edgs")
    with pytest.raises(UsageError, match=r"no measure called 'msee'. Did you mean 'mse'"):
        of(folder, measure="msee")


def test_an_answer_that_was_not_measured_is_named(measured: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match=r"'edges' of 'decoder.best_epoch'. It was taken of: decoder, linear, worst"):
        of(measured(), measure="edges", attacks=("decoder.best_epoch",))


@pytest.mark.parametrize("ways", [(None, None), (True, False)])
def test_without_a_direction_it_is_shown_and_compares_nothing(
    ways: tuple[bool | None, ...], tmp_path: Path, run: Make, audit: Any
) -> None:
    """As in audits of earlier versions, and where two functions have one name."""
    for seed, larger in enumerate(ways, 1):
        run(tmp_path / f"{seed}", seed=seed, audit=audit(0.02, extra={"edges": taken(100.0, larger=larger)}))
    assert "100 ± 0" in as_text(parts(of(tmp_path)))
    with pytest.raises(UsageError, match=r"which way of 'edges' is more private.*--measure edges --again"):
        of(tmp_path, measure="edges")


def test_a_table_without_a_direction_is_refused_beside_one_that_has_it(tmp_path: Path, run: Make, audit: Any) -> None:
    for data, larger in (("cifar10", True), ("cifar100", None)):
        tree = audit(0.02, data=data, extra={"edges": taken(100.0, larger=larger)})
        run(tmp_path / data, data=data, audit=tree)
    assert len(of(tmp_path).tables) == 2
    with pytest.raises(UsageError, match="which way of 'edges' is more private"):
        of(tmp_path, measure="edges")


def test_nothing_is_said_of_guessing_where_no_attack_made_pictures(tmp_path: Path, run: Make, audit: Any) -> None:
    members = {"membership": {"findings": {"loss": {"auc": 0.6}}}}
    run(tmp_path / "a", audit=audit(0.02, attacks={}, worst_case={}, inference=members, extra={"edges": taken(1.0)}))
    (part,) = parts(of(tmp_path))
    assert not any("guessing" in sentence for sentence in part.intro)


def test_a_run_whose_audit_does_not_say_it_goes_by_the_others(tmp_path: Path, run: Make, audit: Any) -> None:
    for seed, larger in ((1, None), (2, False)):
        run(tmp_path / f"{seed}", seed=seed, audit=audit(0.02, extra={"edges": taken(100.0, larger=larger)}))
    assert of(tmp_path, measure="edges").groups[0].measure("edges").sign == -1


def test_a_name_of_ours_is_ours(tmp_path: Path, run: Make, audit: Any) -> None:
    run(tmp_path / "a", audit=audit(0.02, extra={"ssim": taken(100.0)}))
    found = of(tmp_path)
    assert any("'ssim' is a measure of ours" in note for note in found.notes)
    assert found.records[0].scores["worst_case"]["ssim"] == 0.4
    assert found.records[0].extra == {}


def test_what_no_attack_of_ours_has_reached_is_no_attack(tmp_path: Path, run: Make, audit: Any) -> None:
    entry = taken(100.0)
    entry["attacks"]["ghost"] = {"mean": 1.0, "ci95": None}
    run(tmp_path / "a", audit=audit(0.02, extra={"edges": entry}, worst_case={}))
    assert set(of(tmp_path, attacks=("decoder",)).records[0].scores) == {"decoder", "decoder.best_epoch", "linear"}


@pytest.mark.parametrize("extra", [3, [1], {"edges": 3}, {"edges": {"attacks": 3, "floor": [], "worst_case": "x"}}])
def test_damaged_entries_cost_only_themselves(extra: Any, tmp_path: Path, run: Make, audit: Any) -> None:
    run(tmp_path / "a", audit=audit(0.02, extra=extra))
    assert of(tmp_path).records[0].scores["worst_case"]["mse"] == 0.02
