"""`splitveil sweep` as a user meets it."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.experiments.sweep_world import InlineEngine, write_recipe

from splitveil.cli import main
from splitveil.cli.sweep_progress import sweep_progress
from splitveil.core.errors import DataError
from splitveil.experiments.compare.collect import collect
from splitveil.experiments.compare.sweep_index import read_sweep
from splitveil.experiments.sweep import api
from splitveil.experiments.sweep.cells import expand, seed_by_seed
from splitveil.experiments.sweep.folder import SweepFolder
from splitveil.experiments.sweep.live import Progress, Settings
from splitveil.experiments.sweep.needs import check_needs
from splitveil.experiments.sweep.recipe import load_sweep
from splitveil.experiments.sweep.table import table

NOW = Progress(done=3, failed=1, total=9, fraction=0.5, left=120.0, running=(("gmm seed 1", 0.25),), last="gated: done")


@pytest.fixture
def recipe(small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(api, "make_engine", lambda settings, workers: InlineEngine())
    return write_recipe(tmp_path, small_data)


def run(capsys: pytest.CaptureFixture[str], *args: Any) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["sweep", *map(str, args)])
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


def test_dry_run_prints_the_cells_and_runs_none(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, recipe, "--dry-run", "--seeds", "5,6,7", "--grid", "train.lr=0.1,0.2")
    assert code == 0
    assert "gated small.npz lr=0.2 seed 7" in out
    assert out.endswith("12 cells\n")
    code, out, _ = run(capsys, recipe, "--dry-run", "--json")
    assert [(cell["method"], cell["seed"]) for cell in json.loads(out)] == [
        ("none", 1),
        ("gated", 1),
        ("none", 2),
        ("gated", 2),
    ]  # the order in which they run
    assert not (tmp_path / "runs").exists()


def test_a_sweep_ends_with_a_table_or_with_json(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = (recipe, "--out", tmp_path / "s", "--method", "none", "--seeds", "1", "--device", "cpu")
    code, out, err = run(capsys, *options)
    assert code == 0
    head, line, *_ = out.splitlines()
    assert head.split() == ["cell", "method", "data", "seed", "status", "accuracy", "MSE"]
    (cell,) = json.loads((tmp_path / "s" / "sweep.json").read_text())["cells"]
    audit = json.loads((tmp_path / "s" / "cells" / cell["id"] / "audit" / "audit.json").read_text())
    leak = audit["worst_case"]["mse"]
    assert line.split() == [cell["id"], "none", "small.npz", "1", "done", f"{cell['accuracy']:.1%}", f"{leak:.5f}"]
    assert head.index("MSE") == line.index(f"{leak:.5f}")
    assert "sweep 1/1" in err
    code, out, _ = run(capsys, *options, "--json")
    assert json.loads(out) == json.loads((tmp_path / "s" / "sweep.json").read_text())
    # the file and the options, which decide the cells, and not the recipe's bare name
    told = [f"splitveil sweep {recipe.name} --method none --seeds 1 --out s"]
    assert read_sweep(tmp_path / "s").commands("s") == told
    assert collect([tmp_path / "s"]).sweeps[tmp_path / "s"].commands("s") == told


def test_a_dry_run_names_the_cells_that_can_never_train(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setenv("SPLITVEIL_DATA", str(tmp_path / "empty"))
    options = (recipe, "--dry-run", "--seeds", "1", "--method", "none", "--grid", "train.batch_size=32,9999")

    def told(*more: str) -> str:
        caplog.clear()
        code, out, _ = run(capsys, *options, *more)
        assert (code, out.endswith("2 cells\n")) == (0, True)
        return caplog.text

    assert "1 cell cannot train: none small.npz batch_size=9999: train.batch_size = 9999 is larger than" in told()
    assert told("--engine", "ray") == "", "Ray's machines may have other pictures"
    missing = told("--data", "cifar10")
    assert missing.count("The data set cifar10 is not stored") == 1
    assert "cannot train" not in missing


def test_a_sweep_keeps_the_commands_that_made_it(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path)
    first, second = ("tiny.toml", "--seeds", "1"), ("tiny.toml", "--set", "data.name=my set")
    for call in (first, second, first):
        folder.write("tiny", [], calls=folder.calls(call))
    assert read_sweep(tmp_path).commands("my runs") == [
        "splitveil sweep tiny.toml --set 'data.name=my set' --out 'my runs'",
        "splitveil sweep tiny.toml --seeds 1 --out 'my runs'",
    ]
    folder.write("tiny", [])
    assert read_sweep(tmp_path).commands("s") == ["splitveil sweep tiny --out s"], "as earlier versions wrote it"


def test_a_sweep_from_python_says_which_command_makes_the_same_cells(
    recipe: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(recipe.parent)
    grid: dict[str, list[Any]] = {"data.augment": [True, False], "surrogate.name": ["gated"], "train.lr": [1e-4, 0.25]}
    plan = load_sweep(
        recipe, overrides=["train.epochs=2"], methods=["gated"], seeds=[7, 8], modes=["inference_time"], grid=grid
    )
    code, out, err = run(capsys, *plan.call, "--dry-run", "--json")
    assert code == 0, err
    assert json.loads(out) == [cell.description() for cell in seed_by_seed(expand(plan))]
    assert len(json.loads(out)) == 8


def test_a_search_says_which_accuracy_it_means_and_whether_it_got_there() -> None:
    trial = {"number": 0, "values": {"train.privacy_weight": 2.0}, "cells": [], "accuracy": 0.733}
    found = {"method": "gmm", "data": None, "target": 0.72, "reached": False, "best": trial}
    told = table({"cells": [], "search": [found]}).splitlines()[-1]
    assert "train.privacy_weight = 2 has accuracy 73.3% on validation pictures (target 72.0%)" in told
    assert "--trials" in told
    assert "--trials" not in table({"cells": [], "search": [{**found, "reached": True}]})
    assert "no trial succeeded" in table({"cells": [], "search": [{**found, "best": None}]})


def test_a_device_that_is_not_there_leaves_no_folder(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, recipe, "--out", tmp_path / "s", "--device", "abacus")
    assert code == 2, err
    assert not (tmp_path / "s").exists()


def test_failed_cells_are_named_and_the_exit_code_is_1(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = ("--method", "gated", "--seeds", "1", "--grid", "train.batch_size=9999,32", "--device", "cpu")
    code, out, err = run(capsys, recipe, "--out", tmp_path / "s", *grid)
    assert code == 1
    assert "1 cell failed: gated seed 1" in err
    assert "error.json; run failed cells again with --retry-failed." in err
    assert "done" in out


def test_another_recipes_failures_are_not_this_calls(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    out = ("--out", tmp_path / "s", "--seeds", "1", "--device", "cpu")
    code, _, _ = run(capsys, recipe, *out, "--grid", "train.batch_size=9999,32")  # the first is too large for the data
    assert code == 1
    second = tmp_path / "b.toml"
    second.write_text(
        recipe.read_text().replace('name = "none"', 'name = "plain"', 1).split('[[sweep.method]]\nname = "gated')[0]
    )
    code, text, err = run(capsys, second, *out)
    assert code == 0, err
    assert "failed:" not in err
    *_, line, others, _ = text.splitlines()
    assert line.split()[1] == "plain"
    assert others == "In the same folder, from other calls: 3 more cells (2 of them failed)."
    cell = json.loads((tmp_path / "s" / "cells" / line.split()[0] / "cell.json").read_text())
    assert cell["method"] == "plain"
    assert "that was called none batch_size=32 before; it is renamed" in caplog.text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--seeds", "1,x"], "--seeds 1,2,3"),
        (["--grid", "train.lr"], "section.key=a,b,c"),
        (["--mode", "training"], "training_time"),
        (["--method", "gatd"], "Did you mean 'gated'"),
        (["--checkpoints", "some"], "final, all or none"),
        (["--engine", "dask"], "local or ray"),
        (["--search", "train.privacy_weight=1:64:log"], "--search needs an accuracy to aim at"),
        (["--search", "train.privacy_weight=1:64:log"], "--target accuracy=0.88"),
        (["--search", "train.privacy_weight=1:64:log", "--dry-run"], "--target accuracy=0.88"),
        (["--search", "train.lr=1:2", "--target", "accuracy=0.8", "--dry-run"], "Leave out --dry-run, or --search"),
        (["--set", "train.init_from=nowhere", "--dry-run"], "There is no run folder nowhere"),
        (["--set", "train.init_from=nowhere"], "There is no run folder nowhere"),
        (["--target", "accuracy=0.88"], "--search"),
        (["--trials", "3"], "--trials and --tolerance belong to a search"),
        (["--tolerance", "0.1", "--dry-run"], "--trials and --tolerance belong to a search"),
        (["--search", "train.privacy_weight=64:1", "--target", "accuracy=0.88"], "Lowest first"),
        (["--search", "train.privacy_weight=64:1", "--target", "accuracy=0.88"], "is not a range"),
        (["--workers", "0"], "workers"),
        (["--set", "train.epoch=3"], "Did you mean 'epochs'"),
        (["--set", "seeds=3"], "Unknown key 'seeds'"),
        (["--grid", "train.lr=0.1", "--grid", "train.lr=0.2"], "--grid names 'train.lr' twice"),  # the first was lost
        (["--grid", "sweep.seeds=1,2"], "'sweep.seeds' cannot be an axis"),
        (["--data", ""], "--data '' is not a list of data sets"),  # a shell variable that is empty
        (["--data", "fashion-mini,"], "is not a list of data sets"),
        (
            ["--search", "train.lr=1:2", "--search", "train.lr=1:3", "--target", "accuracy=0.9"],
            "--search names 'train.lr' twice",
        ),
    ],
)
def test_a_slip_is_one_sentence_and_exit_2(
    small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    recipe = write_recipe(tmp_path, small_data)
    code, _, err = run(capsys, recipe, "--out", tmp_path / "s", "--device", "cpu", *options)
    assert code == 2
    assert words in err
    assert "Traceback" not in err


def test_a_file_in_the_place_of_the_folder_is_called_one(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = recipe.read_text()
    code, _, err = run(capsys, recipe, "--out", recipe, "--device", "cpu")
    assert code == 2
    assert f"{recipe} is a file, not a folder." in err
    assert recipe.read_text() == before


def test_names_of_data_sets_may_have_spaces_between_them(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = f"{recipe.parent / 'small.npz'}, fashion-mini"
    code, out, _ = run(capsys, recipe, "--dry-run", "--method", "none", "--seeds", "1", "--data", data)
    assert code == 0
    assert "none fashion-mini seed 1" in out


def test_train_sends_a_sweep_recipe_to_the_right_verb(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", str(recipe)])
    assert stop.value.code == 2
    assert "splitveil sweep RECIPE" in capsys.readouterr().err


def test_plain_lines_say_how_it_goes(capsys: pytest.CaptureFixture[str]) -> None:
    with sweep_progress() as watch:
        watch(NOW)
    assert capsys.readouterr().err == "sweep 4/9 about 2 min left, 1 failed, 1 running, gated: done\n"
    with sweep_progress(quiet=True) as watch:
        watch(NOW)
    assert capsys.readouterr().err == ""


def test_nothing_is_left_when_all_cells_have_ended(capsys: pytest.CaptureFixture[str]) -> None:
    with sweep_progress() as watch:
        watch(replace(NOW, done=8, running=()))
    assert capsys.readouterr().err == "sweep 9/9 1 failed, gated: done\n"


def test_a_terminal_shows_all_cells_and_every_running_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("COLUMNS", "140")
    with sweep_progress() as watch:
        watch(NOW)
        watch(Progress(4, 1, 9, 0.6, 100.0, (("gated seed 2", 0.5),), ""))
    text = screen.getvalue()
    assert "5/9 about 2 min left" in text
    assert "gated seed 2" in text


def test_a_data_set_that_is_not_stored_is_refused_before_anything_starts(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPLITVEIL_DATA", str(tmp_path / "empty"))
    sweep = (recipe, "--out", tmp_path / "s", "--device", "cpu")
    code, _, err = run(capsys, *sweep, "--data", f"{recipe.parent / 'small.npz'},cifar10")
    assert code == 1
    assert "The data set cifar10 is not stored in" in err
    assert "splitveil data cifar10" in err
    assert "cells failed" not in err
    assert not (tmp_path / "s").exists()


def test_a_measure_whose_package_is_not_here_is_refused_before_anything_starts(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each cell would train to its end, and fail when its audit begins."""
    monkeypatch.setitem(sys.modules, "lpips", None)
    out = tmp_path / "sweep"
    code, _, err = run(capsys, recipe, "--out", out, "--device", "cpu", "--set", 'audit.measures=["lpips"]')
    assert code == 2
    assert "needs the package lpips" in err
    assert not out.exists()


def test_finished_cells_need_no_data(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLITVEIL_DATA", str(tmp_path / "empty"))
    cells, settings = expand(load_sweep(str(recipe), data=["cifar10"])), Settings(tmp_path / "s")
    for cell in cells[1:]:
        (settings.out / "cells" / cell.id / "audit").mkdir(parents=True)
        for name in ("result.json", "audit/audit.json"):
            (settings.out / "cells" / cell.id / name).write_text("{}")
    with pytest.raises(DataError, match="not stored"):
        check_needs(cells, settings)
    check_needs(cells[1:], settings)
    (settings.out / ".aside" / "tag" / cells[0].id).mkdir(parents=True)  # may come back finished
    check_needs(cells, settings)
    check_needs(expand(load_sweep(str(recipe))), settings)


def test_nobody_is_told_to_compare_cells_that_all_failed(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = ("--method", "gated", "--seeds", "1", "--set", "train.batch_size=9999", "--device", "cpu")
    code, out, err = run(capsys, recipe, "--out", tmp_path / "s", *grid)
    assert code == 1
    assert "1 cell failed" in err
    assert "splitveil compare" not in out


REFERENCE = """
title = "a paper"
source = "From its logs."
explanation = "What the printed number was."
attack = "linear"
[[row]]
label = "none, training-time"
mode = "training_time"
surrogate = "none"
accuracy = 0.5
mse = 0.04
"""


def test_a_recipe_can_ask_for_its_comparison(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One command from the recipe to the table beside published numbers, both modes of attack, each trained once."""
    (tmp_path / "paper.toml").write_text(REFERENCE)
    more = 'modes = ["training_time", "inference_time"]\ncompare = { attacks = ["linear"], reference = "paper.toml" }\n'
    recipe.write_text(recipe.read_text().replace("[sweep]\n", f"[sweep]\n{more}"))
    ran: list[str] = []
    monkeypatch.setattr(InlineEngine, "ran", ran)
    code, out, _ = run(capsys, recipe, "--out", tmp_path / "s", "--device", "cpu")
    assert code == 0
    assert "Beside published numbers: a paper" in out
    assert "What the printed number was." in out
    page = (tmp_path / "s" / "comparison.md").read_text()
    for words in (
        "training-time, attack linear",
        "inference-time, attack linear",
        "recon_acc",
        "PSNR dB",
        "SSIM",
        "none",
    ):
        assert words in page
    assert page.index("Beside published numbers") < page.index("training-time, attack linear")
    with pytest.raises(SystemExit):  # and compare does the same when it is not told otherwise
        main(["compare", str(tmp_path / "s"), "--format", "markdown"])
    assert capsys.readouterr().out == page
    assert len(ran) == len(set(ran)) == 4  # no cell was trained twice


def test_a_comparison_that_cannot_be_made_does_not_fail_the_sweep(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    recipe.write_text(recipe.read_text().replace("[sweep]\n", '[sweep]\ncompare = { attacks = ["decoder"] }\n'))
    code, out, _ = run(capsys, recipe, "--out", tmp_path / "s", "--seeds", "1", "--device", "cpu")
    assert code == 0
    assert "names 'decoder', which no audit of the sweep makes" in caplog.messages[0]  # before hours of work
    assert "Not compared: No audit here has the attack 'decoder'." in out


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("compare = 1", "'sweep.compare' must be a table"),
        ('compare = { attack = ["decoder"] }', "attack"),
        ('compare = { measure = "mae" }', "no measure called 'mae'"),
        ('compare = { reference = "none.toml" }', "no reference 'none.toml'"),
    ],
)
def test_a_wrong_comparison_is_refused_before_the_work(
    table: str, sentence: str, recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe.write_text(recipe.read_text().replace("[sweep]\n", f"[sweep]\n{table}\n"))
    code, _, err = run(capsys, recipe, "--out", tmp_path / "s", "--device", "cpu")
    assert code == 2
    assert sentence in err
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
@pytest.mark.parametrize(
    ("option", "slip", "sentence"),
    [("--engine", "ry", "no engine called 'ry'"), ("--checkpoints", "last", "--checkpoints cannot be 'last'")],
)
def test_a_slip_in_the_settings_touches_nothing_and_is_foreseen(
    option: str,
    slip: str,
    sentence: str,
    dry: list[str],
    recipe: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, said = run(capsys, recipe, "--out", tmp_path / "swept", option, slip, *dry)
    assert (code, out) == (2, "")
    assert sentence in said
    assert not (tmp_path / "swept").exists()
