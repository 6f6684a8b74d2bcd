"""Attacks that make no pictures (membership, attributes): compared by what they found out."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from splitveil.core.errors import UnknownNameError
from splitveil.core.files import write_atomic
from splitveil.experiments.compare.at_accuracy import unread
from splitveil.experiments.compare.collect import collect
from splitveil.experiments.compare.comparison import Comparison, compare
from splitveil.experiments.compare.data_file import DataFile, data_text, read_data_file
from splitveil.experiments.compare.machine import as_csv, as_tree
from splitveil.experiments.compare.part import Grid
from splitveil.experiments.compare.prose import parts
from splitveil.experiments.compare.render import as_text
from splitveil.experiments.compare.view import View
from splitveil.report.charts.paper import frontier_figure

Make = Callable[..., Path]
LACK = {"attacks": {}, "worst_case": {}}  # what an audit without pictures writes


def inference(auc: float | None, rate: float = 0.75) -> dict[str, Any]:
    """The part of audit.json that `membership` and `attribute` write."""
    membership: dict[str, Any] = {"auc": None, "reason": "too few candidates"}
    if auc is not None:
        membership = {
            "auc": auc, "auc_ci95": [auc - 0.05, auc + 0.05], "candidates": 200,
            "tpr_at_1_percent_fpr": {"rate": 0.04, "ci95": [0.01, 0.1]},
            "accuracy_of_attack": {"rate": 0.6, "ci95": [0.5, 0.7]},
        }  # fmt: skip
    bright = {"rate": rate, "ci95": [rate - 0.1, rate + 0.1], "guessing": 0.5}
    return {
        "membership": {"findings": {"likelihood_ratio": membership}, "seconds": 1.0, "summary": "who was there"},
        "attribute": {"findings": {"bright from feature": bright}},
    }


def comparison(*paths: Path, **view: Any) -> Comparison:
    found = collect(list(paths))
    return compare(found.records, View(**view), found.notes)


def grid(found: Comparison) -> Grid:
    (one,) = [grid for part in parts(found) for grid in part.grids if grid.caption.startswith("Found out")]
    return one


def test_a_run_attacked_without_pictures_is_listed_with_what_was_found(tmp_path: Path, run: Make, audit: Any) -> None:
    run(tmp_path / "one", audit=audit(0.0, inference=inference(0.61), **LACK))
    found = comparison(tmp_path)
    text = as_text(parts(found))
    assert "not attacked" not in text
    assert "left out" not in text
    assert "worst case" not in text
    with pytest.raises(UnknownNameError, match="Did you mean 'membership'"):
        comparison(tmp_path, attacks=("membersip",))
    table = grid(found)
    assert table.head[2:] == ["attack", "finding", "AUC", "TPR % at 1 % FPR", "right %", "guessing %"]
    assert [row[2:] for row in table.rows] == [
        ["attribute", "bright from feature", "-", "-", "75.00 [65.00, 85.00]*", "50.00"],
        ["membership", "likelihood_ratio", "0.610 [0.560, 0.660]*", "4.00 [1.00, 10.00]*", "-", "-"],
    ]
    assert "No attack here made pictures" in text
    assert "No attacked runs to draw" in frontier_figure(found)


def test_over_seeds_the_interval_is_over_seeds(tmp_path: Path, run: Make, audit: Any) -> None:
    for seed, auc in ((1, 0.60), (2, 0.62)):
        run(tmp_path / f"r{seed}", seed=seed, audit=audit(0.0, inference=inference(auc), **LACK))
    (row,) = [row for row in grid(comparison(tmp_path)).rows if row[2] == "membership"]
    # mean 0.61, sd 0.01·√2, t(1) = 12.706: 0.61 ± 0.127
    assert row[4] == "0.610 ± 0.014 [0.483, 0.737]"


def test_beside_attacks_with_pictures_they_are_told_once(tmp_path: Path, run: Make, audit: Any) -> None:
    run(tmp_path / "one", audit=audit(0.04, inference=inference(0.61)))
    found = comparison(tmp_path, attacks=("decoder", "linear"))
    assert [table.attack for table in found.tables] == ["decoder", "linear"]
    assert len(grid(found).rows) == 2
    assert [table.attack for table in comparison(tmp_path, attacks=("membership",)).tables] == [""]
    with pytest.raises(UnknownNameError, match="Did you mean 'membership'"):
        comparison(tmp_path, attacks=("membersip",))


def test_the_attacks_behind_a_worst_case_are_named(tmp_path: Path, run: Make, audit: Any) -> None:
    """A tier's name does not say which: a recipe may have chosen one of its nine. A data file says the same."""
    run(tmp_path / "one", audit=audit(0.04, inference=inference(0.61)))
    run(tmp_path / "two", seed=2, mse=None)
    found = comparison(tmp_path)
    told = ["; ".join(part.intro) for part in parts(found)]
    assert sum("Attacks: attribute, decoder, linear, membership." in intro for intro in told) == 1
    write_atomic(tmp_path / "kept.json", data_text(DataFile(collect([tmp_path]).records)))
    again = compare(read_data_file(tmp_path / "kept.json").records, View())
    assert ["; ".join(part.intro) for part in parts(again)][-1] == told[-1]
    assert "Attacks:" not in as_text(parts(comparison(tmp_path / "two")))  # nobody attacked it


def test_other_runs_keep_their_tables(tmp_path: Path, run: Make, audit: Any) -> None:
    """The attacks differ, so the two audits are shown apart, and a run that nobody attacked is still left out."""
    run(tmp_path / "pictures", seed=1)
    tree = audit(0.0, inference=inference(0.61), **LACK) | {"signature": "audit|attacks:0ther"}
    run(tmp_path / "members", seed=2, audit=tree)
    run(tmp_path / "nothing", seed=3, mse=None)
    found = comparison(tmp_path)
    assert sorted(table.attack for table in found.tables) == ["", "worst_case"]
    assert any("No audit yet, left out: nothing." in note for note in found.notes)


def test_a_data_file_keeps_them(tmp_path: Path, run: Make, audit: Any) -> None:
    run(tmp_path / "one", audit=audit(0.0, inference=inference(0.61), **LACK))
    records = collect([tmp_path]).records
    write_atomic(tmp_path / "data.json", data_text(DataFile(records)))
    assert read_data_file(tmp_path / "data.json").records == records
    assert records[0].findings["membership: likelihood_ratio"] == {"auc": 0.61, "tpr_at_1_percent_fpr": 0.04}


def test_programs_get_them_too(tmp_path: Path, run: Make, audit: Any) -> None:
    run(tmp_path / "one", audit=audit(0.0, inference=inference(0.61), **LACK))
    found = comparison(tmp_path, at=(0.9,))
    (cell,) = as_tree(found)["tables"][0]["cells"]
    assert cell["findings"]["membership: likelihood_ratio"]["auc"]["mean"] == 0.61
    rows = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert ("membership: likelihood_ratio", "auc", "0.61") in {(r["attack"], r["measure"], r["mean"]) for r in rows}
    assert unread(found) == [
        "Nothing can be interpolated at 90.00 % accuracy: the runs on cifar10 have no attack with pictures."
    ]


def test_an_audit_that_found_no_number_is_left_out(tmp_path: Path, run: Make, audit: Any) -> None:
    only = {"membership": inference(None)["membership"]}
    run(tmp_path / "few", audit=audit(0.0, inference=only, **LACK))
    found = collect([tmp_path])
    assert any("few/audit/audit.json holds no usable MSE" in note for note in found.notes)
    assert [record.setting.mode for record in found.records] == ["not attacked"]
