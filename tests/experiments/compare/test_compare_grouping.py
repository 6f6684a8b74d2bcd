"""What goes into one table and what never does; methods, strengths, seeds and their names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from splitveil.core.dotted import flatten
from splitveil.experiments.compare.cells import Group
from splitveil.experiments.compare.collect import collect
from splitveil.experiments.compare.comparison import compare
from splitveil.experiments.compare.data_file import DataFile, data_text
from splitveil.experiments.compare.grouping import group
from splitveil.experiments.compare.labels import method_name, short_key, write_settings

Make = Callable[..., Path]


def groups(*paths: Path, **options: Any) -> tuple[list[Group], list[str]]:
    found = collect(list(paths))
    return group(found.records, **options)


def names(one: Group) -> list[str]:
    return [cell.name for cell in one.cells]


def test_seeds_of_one_configuration_are_one_cell(tmp_path: Path, run: Make) -> None:
    for seed in (3, 1, 2):
        run(tmp_path / f"s{seed}", seed=seed, accuracy=0.8 + seed / 100)
    (one,), notes = groups(tmp_path)
    (cell,) = one.cells
    assert cell.values("", "accuracy") == {1: 0.81, 2: 0.82, 3: 0.83}
    assert (cell.name, cell.label) == ("gmm (corrected)", "weight 16, noise.sigma 0.025")
    assert notes == []


def test_cells_that_guessing_equals_are_named(tmp_path: Path, run: Make, put: Callable[[Path, Any], None]) -> None:
    """Guessing the mean picture has 0.0618 in these audits."""
    run(tmp_path / "good", weight=1.0, mse=0.0617)
    run(tmp_path / "idle", weight=2.0)
    result = tmp_path / "idle" / "result.json"
    put(result, json.loads(result.read_text()) | {"works": False})
    run(tmp_path / "beyond", weight=4.0, mse=0.07)
    read = collect([tmp_path]).records
    (tmp_path / "kept.json").write_text(data_text(DataFile(read)))
    for records in (read, collect([tmp_path / "kept.json"]).records):  # a data file keeps it
        notes = compare(records).tables[0].notes
        (idle,) = [note for note in notes if "most frequent class" in note]
        (beyond,) = [note for note in notes if "mean picture" in note]
        assert idle.endswith(": gmm (corrected), weight 2.")
        assert "better than the attacks on gmm (corrected), weight 4:" in beyond


def test_a_cell_of_which_some_seeds_learned_nothing_is_not_called_one_that_learned_nothing(
    tmp_path: Path, run: Make, put: Callable[[Path, Any], None]
) -> None:
    for seed in (1, 2, 3):
        run(tmp_path / f"s{seed}", seed=seed)
    result = tmp_path / "s2" / "result.json"
    put(result, json.loads(result.read_text()) | {"works": False})
    (note,) = [one for one in compare(collect([tmp_path]).records).tables[0].notes if "most frequent class" in one]
    assert note.startswith("The mean over seeds looks safer than it is")
    assert note.endswith(": gmm (corrected) (1 of 3 seeds).")


def test_cells_whose_training_warned_are_named(tmp_path: Path, run: Make, put: Callable[[Path, Any], None]) -> None:
    shut = "epochs in which the surrogate was mostly shut off"
    for seed, times in ((1, 3), (2, 7)):
        run(tmp_path / f"shut{seed}", weight=2.0, seed=seed)
        result = tmp_path / f"shut{seed}" / "result.json"
        put(result, json.loads(result.read_text()) | {"guards": {shut: times, "steps skipped": 0}})
    run(tmp_path / "good", weight=1.0)
    read = collect([tmp_path]).records
    (tmp_path / "kept.json").write_text(data_text(DataFile(read)))
    for records in (read, collect([tmp_path / "kept.json"]).records):  # a data file keeps it
        (told,) = [note for note in compare(records).tables[0].notes if note.startswith("Training counted")]
        assert told == f"Training counted {shut} (in brackets: of one run, at most): gmm (corrected), weight 2 (7)."


DIFFERENT = {
    "code version": {"revision": "bbbbbbbbbbbb"},
    "data": {"data": "cifar100"},
    "tier": {"audit": {"tier": "deep"}},
    "attack mode": {"audit": {"mode": "inference_time"}},
    "protocol": {"audit": {"protocol": "disjoint"}},
    "number of pictures": {"audit": {"num_images": 500}},
    "attack settings": {"audit": {"signature": "splitveil:0.1.0|audit|attacks:deadbeef"}},
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_does_not_compare_is_never_mixed(tmp_path: Path, run: Make, audit: Any, what: str) -> None:
    change = dict(DIFFERENT[what])
    if "audit" in change:
        change["audit"] = audit(0.04, **change["audit"])
    run(tmp_path / "one", seed=1)
    run(tmp_path / "two", seed=2, **change)
    found, notes = groups(tmp_path)
    assert [len(one.records) for one in found] == [1, 1]
    assert len(notes) == 1
    assert "do not all compare" in notes[0]
    assert what in notes[0]


def test_code_versions_are_mixed_only_on_request_and_loudly(tmp_path: Path, run: Make) -> None:
    run(tmp_path / "one", seed=1)
    run(tmp_path / "two", seed=2, revision="bbbbbbbbbbbb")
    (one,), notes = groups(tmp_path, mix_versions=True)
    assert len(one.records) == 2
    assert notes == [
        "Runs of different code versions were put together because --mix-versions asked for it: "
        "0.1.0 (aaaaaaaaaaaa) and 0.1.0 (bbbbbbbbbbbb)."
    ]
    assert one.setting.code == "0.1.0 (aaaaaaaaaaaa) and 0.1.0 (bbbbbbbbbbbb)"


def _trained_by(folder: Path, put: Callable[..., None], **plug_ins: str) -> None:
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    put(folder / "manifest.json", manifest | {"plug_ins": plug_ins})


def test_two_versions_of_a_plug_in_are_two_code_versions(tmp_path: Path, run: Make, put: Callable[..., None]) -> None:
    for seed, code in ((1, "aaaa"), (2, "aaaa"), (3, "bbbb")):
        _trained_by(run(tmp_path / f"run{seed}", seed=seed), put, mine=code, other="cccc")
    found, notes = groups(tmp_path)
    assert [(one.setting.code, len(one.records)) for one in found] == [
        ("0.1.0 (aaaaaaaaaaaa) with mine aaaa", 2),
        ("0.1.0 (aaaaaaaaaaaa) with mine bbbb", 1),
    ]
    assert "do not all compare" in notes[0]
    assert "mine aaaa" in notes[0]
    (pooled,), notes = groups(tmp_path, mix_versions=True)
    assert len(pooled.records) == 3
    assert "mine aaaa and 0.1.0 (aaaaaaaaaaaa) with mine bbbb" in notes[0]
    kept = tmp_path / "kept.json"
    kept.write_text(data_text(DataFile(collect([tmp_path]).records)), encoding="utf-8")
    assert len(groups(kept)[0]) == 2  # a data file knows it, too


def test_a_plug_in_in_one_version_compares_with_runs_without_it(
    tmp_path: Path, run: Make, put: Callable[..., None]
) -> None:
    _trained_by(run(tmp_path / "own"), put, mine="aaaa")
    run(tmp_path / "other", surrogate="gated")
    found, notes = groups(tmp_path)
    assert (len(found), notes) == (1, [])


def test_two_versions_of_an_attack_of_ones_own_are_two_settings(tmp_path: Path, run: Make, audit: Any) -> None:
    for seed, code in ((1, "aaaa"), (2, "bbbb")):
        line = f"splitveil:0.1.0|plug_ins:ffff|audit|plug_ins:{code}|attacks:3aeec1c0"
        run(tmp_path / code, seed=seed, audit=audit(0.04, signature=line))
    found, notes = groups(tmp_path)
    assert len(found) == 2
    assert "attack settings: 3aeec1c0 with plug-ins aaaa, 3aeec1c0 with plug-ins bbbb" in notes[0]


def test_local_changes_are_told(tmp_path: Path, run: Make) -> None:
    run(tmp_path / "one", revision="aaaaaaaaaaaa+")
    (one,), _ = groups(tmp_path)
    assert any("local changes" in note for note in one.notes)


def test_the_same_seed_on_other_pictures_is_shown_apart(tmp_path: Path, run: Make, put: Callable[..., None]) -> None:
    run(tmp_path / "one")
    other = run(tmp_path / "two", surrogate="gated")
    put(
        other / "manifest.json",
        {"versions": {"splitveil": "0.1.0"}, "revision": "aaaaaaaaaaaa", "data": {"checksum": "ff"}},
    )
    found, notes = groups(tmp_path)
    assert len(found) == 2
    assert any("different pictures" in note for note in notes)


def test_checksums_may_differ_between_seeds(tmp_path: Path, run: Make, put: Callable[..., None]) -> None:
    run(tmp_path / "one", seed=1)
    other = run(tmp_path / "two", seed=2)
    put(
        other / "manifest.json",
        {"versions": {"splitveil": "0.1.0"}, "revision": "aaaaaaaaaaaa", "data": {"checksum": "ff"}},
    )
    found, _ = groups(tmp_path)
    assert len(found) == 1


def test_strengths_are_a_curve_and_other_differences_are_methods(tmp_path: Path, run: Make) -> None:
    run(tmp_path / "a", weight=8.0)
    run(tmp_path / "b", weight=16.0)
    run(tmp_path / "c", weight=16.0, settings={"train": {"epochs": 40, "privacy_weight": 16.0}})
    (one,), _ = groups(tmp_path)
    assert sorted(one.methods) == [
        "gmm (corrected) [train.epochs=240]",
        "gmm (corrected) [train.epochs=40]",
    ]
    assert [cell.label for cell in one.methods["gmm (corrected) [train.epochs=240]"]] == ["weight 8", "weight 16"]
    assert dict(one.constant) == {"defence.noise.sigma": 0.025}


def test_what_a_rate_is_measured_against_is_no_strength(tmp_path: Path, run: Make) -> None:
    surrogate = {"name": "gmm", "mode": "corrected", "loss_scale": 1.0}
    for weight in (0.5, 2.0):
        run(tmp_path / f"old{weight}", weight=weight, settings={"surrogate": surrogate})
        run(tmp_path / f"new{weight}", weight=8 * weight, settings={"surrogate": surrogate | {"rate_sigma": 0.1}})
    (one,), _ = groups(tmp_path)
    assert {name: [cell.label for cell in cells] for name, cells in one.methods.items()} == {
        "gmm (corrected) [rate_sigma=0.1]": ["weight 4", "weight 16"],
        "gmm (corrected) [rate_sigma=none]": ["weight 0.5", "weight 2"],
    }


def test_a_sweeps_name_also_names_the_same_settings_elsewhere(tmp_path: Path, run: Make, sweep: Make) -> None:
    root = sweep(tmp_path / "sweep", [{"method": "ours", "seed": 1}])
    alone = run(tmp_path / "alone", seed=2)
    (one,), _ = groups(root, alone)
    assert [(cell.method, len(cell.runs)) for cell in one.cells] == [("ours", 2)]


def test_how_often_a_run_saves_does_not_make_it_another(tmp_path: Path, run: Make) -> None:
    run(tmp_path / "a", seed=1)
    train = {"epochs": 240, "privacy_weight": 16.0, "checkpoint_every": 5, "keep_every": 10}
    run(tmp_path / "b", seed=2, settings={"train": train})
    (one,), _ = groups(tmp_path)
    assert [len(cell.runs) for cell in one.cells] == [2]


def test_two_names_for_the_same_settings_are_told(tmp_path: Path, sweep: Make) -> None:
    first = sweep(tmp_path / "first", [{"method": "ours", "seed": 1}])
    second = sweep(tmp_path / "second", [{"method": "also", "seed": 2}])
    (one,), notes = groups(first, second)
    assert list(one.methods) == ["also"]
    assert notes == ["The same settings are called also and ours; here: also."]


def test_a_weight_of_zero_is_the_end_of_a_sweeps_curve_but_no_surrogate_elsewhere(
    tmp_path: Path, run: Make, sweep: Make
) -> None:
    cells = [{"method": "gmm", "weight": 0.0}, {"method": "gmm", "weight": 8.0}]
    (one,), _ = groups(sweep(tmp_path / "sweep", cells))
    assert [cell.label for cell in one.methods["gmm"]] == ["weight 0", "weight 8"]
    run(tmp_path / "plain", weight=0.0)
    (one,), _ = groups(tmp_path / "plain")
    assert list(one.methods) == ["noise only"]


def test_twins_count_once_and_the_newer_one_wins(tmp_path: Path, run: Make) -> None:
    run(tmp_path / "z-old", accuracy=0.80, ended="2026-01-01T00:00:00+00:00")
    run(tmp_path / "a-new", accuracy=0.82, ended="2026-02-01T00:00:00+00:00")
    (one,), notes = groups(tmp_path)
    assert [record.accuracy for record in one.records] == [0.82]
    assert notes == ["z-old and a-new have the same settings and seed 1 but other numbers; the newer one counts."]


def test_the_same_seed_of_two_versions_counts_once_where_they_are_mixed(tmp_path: Path, run: Make) -> None:
    """Else a seed that was run again with newer code would weigh twice in the mean, and narrow the interval."""
    run(tmp_path / "old" / "cell", accuracy=0.80, ended="2026-01-01T00:00:00+00:00")
    run(tmp_path / "new" / "cell", accuracy=0.82, ended="2026-02-01T00:00:00+00:00", revision="bbbbbbbbbbbb")
    run(tmp_path / "other", seed=2, accuracy=0.81)
    (one,), notes = groups(tmp_path, mix_versions=True)
    assert sorted((record.seed, record.accuracy) for record in one.records) == [(1, 0.82), (2, 0.81)]
    assert "Two runs called cell have the same settings and seed 1 but other numbers; the newer one counts." in notes


def test_a_copy_of_a_run_counts_once(tmp_path: Path, run: Make) -> None:
    run(tmp_path / "a")
    run(tmp_path / "b")
    (one,), notes = groups(tmp_path)
    assert len(one.records) == 1
    assert notes == ["a and b are the same run; it counts once."]


def test_missing_seeds_are_told(tmp_path: Path, run: Make) -> None:
    for seed in (1, 2, 3):
        run(tmp_path / f"a{seed}", seed=seed)
    run(tmp_path / "b1", seed=1, surrogate="gated")
    run(tmp_path / "c1", seed=1, surrogate="rate")
    run(tmp_path / "d1", seed=1, surrogate="enhanced")
    run(tmp_path / "d2", seed=2, surrogate="enhanced")
    (one,), _ = groups(tmp_path)
    assert one.notes == (
        "No run with seed 2, 3: gated (corrected); rate (corrected).",
        "No run with seed 3: enhanced (corrected).",
    )


def test_different_hardware_is_told(tmp_path: Path, run: Make, put: Callable[..., None]) -> None:
    run(tmp_path / "a", seed=1)
    b = run(tmp_path / "b", seed=2)
    put(b / "manifest.json", {
        "versions": {"splitveil": "0.1.0", "torch": "2.13.0"}, "revision": "aaaaaaaaaaaa",
        "hardware": {"processor": "x86_64", "cores": 2, "gpu": None},
    })  # fmt: skip
    (one,), _ = groups(tmp_path)
    assert one.notes == (
        "The runs were made with different hardware: NVIDIA H200, x86_64, 2 cores.",
        "The runs were made with different torch versions: 2.11.0, 2.13.0.",
    )


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (
            {"surrogate.name": "gmm", "surrogate.mode": "faithful", "surrogate.preset": "gmm.released"},
            "gmm (gmm.released)",
        ),
        ({"surrogate.name": "gated", "surrogate.mode": "corrected", "defence.sca": {}}, "gated (corrected) + sca"),
        ({"defence.bottleneck.channels": 8, "defence.nopeek.weight": 0.3, "defence.noise.sigma": 0.2}, "nopeek"),
        ({"defence.bottleneck.channels": 8, "defence.noise.sigma": 0.0}, "noise only"),
        ({"defence.bottleneck.channels": 8}, "undefended"),
        ({}, "undefended"),
    ],
)
def test_method_names(settings: dict[str, Any], name: str) -> None:
    assert method_name(settings) == name


def test_settings_are_written_with_the_weight_first() -> None:
    assert (
        write_settings({"defence.noise.sigma": 0.025, "train.privacy_weight": 16.0}) == "weight 16, noise.sigma 0.025"
    )
    assert short_key("surrogate.margin_m") == "margin_m"
    assert flatten({"a": {"b": {"c": 1}}, "d": 2}) == {"a.b.c": 1, "d": 2}
