"""Compare and report read what a sweep really writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.experiments.sweep_world import InlineEngine, write_recipe

from splitveil.core.errors import ConfigError, UnknownNameError
from splitveil.experiments.compare.collect import collect
from splitveil.experiments.compare.comparison import compare
from splitveil.experiments.sweep import api
from splitveil.experiments.sweep.api import run_sweep
from splitveil.experiments.sweep.cells import expand
from splitveil.experiments.sweep.live import Settings
from splitveil.experiments.sweep.recipe import load_sweep
from splitveil.report import build_report


def test_a_sweep_goes_through_compare_and_report(
    small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InlineEngine, "ran", [])
    monkeypatch.setattr(api, "make_engine", lambda settings, workers: InlineEngine())
    out = tmp_path / "sweep"
    plan = load_sweep(write_recipe(tmp_path, small_data), modes=["training_time", "inference_time"])
    run_sweep(plan, Settings(out, device="cpu"))
    found = collect([out])
    assert found.notes == []
    assert list(found.sweeps) == [out]
    comparison = compare(found.records)
    assert [table.group.setting.mode for table in comparison.tables] == ["inference_time", "training_time"]
    for table in comparison.tables:
        assert sorted(table.group.methods) == ["gated", "none"]
        for summary in table.summaries:
            assert [run.seed for run in summary.cell.runs] == [1, 2]
            assert {"worst_case", "linear"} <= set(summary.leaks)
    # The code's own checksum, the attack's digest and the hardware are there: nothing fell back to "unknown".
    setting = comparison.tables[0].group.setting
    assert "unknown" not in str(setting)
    assert str(tmp_path) not in str(comparison.records)
    page = build_report([out], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "gated, SSIM" in page  # the sweep's own name for the method, below its pictures


def test_a_recipe_may_compare_by_a_measure_that_its_audits_are_given(small_data: Path, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, small_data)
    told = recipe.read_text(encoding="utf-8")
    assert "[sweep]\n" in told
    recipe.write_text(told.replace("[sweep]\n", '[sweep]\ncompare = { measure = "lpips" }\n'), encoding="utf-8")
    plan = load_sweep(recipe, overrides=['audit.measures=["lpips"]'])
    assert plan.sweep.compare is not None
    assert plan.sweep.compare.measure == "lpips"
    assert expand(plan)
    with pytest.raises(ConfigError, match=r"'lpips', which no audit of the sweep takes"):  # before hours of work
        expand(load_sweep(recipe))


@pytest.mark.parametrize(
    ("wanted", "audit", "missing"),
    [
        (["linear"], 'audit.attacks=["linear"]', []),
        (["worst_case", "worst_case_once"], 'audit.attacks=["linear"]', []),
        (["decoder.best_epoch", "linear"], 'audit.attacks=["linear"]', ["decoder.best_epoch"]),
        (["membership"], "audit.attacks={membership={shadows=2}}", []),
        (["membership", "gan"], 'audit.attacks=["linear"]', ["membership", "gan"]),
        (["retrieval", "decoder.best_epoch"], 'audit.tier="smoke"', []),
        (["retrieval", "gan"], 'audit.tier="smoke"', ["gan"]),
        (["gan"], 'audit.tier="deep"', []),
    ],
)
def test_an_attack_that_no_audit_makes_is_named_before_the_first_cell(
    small_data: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    wanted: list[str],
    audit: str,
    missing: list[str],
) -> None:
    recipe = write_recipe(tmp_path, small_data)
    told = recipe.read_text(encoding="utf-8")
    if "tier" in audit:
        told = told.replace('attacks = ["linear"]\n', "")
    compare = f"compare = {{ attacks = {json.dumps(wanted)} }}"
    recipe.write_text(told.replace("[sweep]\n", f"[sweep]\n{compare}\n"), encoding="utf-8")
    assert expand(load_sweep(recipe, overrides=[audit]))
    names = ", ".join(map(repr, missing))
    expected = f"'sweep.compare.attacks' names {names}, which no audit of the sweep makes" if missing else ""
    assert caplog.text.count("sweep.compare") == bool(missing)
    assert expected in caplog.text


def test_no_other_name_begins_like_the_worst_case(small_data: Path, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, small_data)
    told = recipe.read_text(encoding="utf-8")
    recipe.write_text(told.replace("[sweep]\n", '[sweep]\ncompare = { attacks = ["worst_cases"] }\n'), encoding="utf-8")
    with pytest.raises(UnknownNameError, match="no attack called 'worst_cases'"):
        load_sweep(recipe)
