"""What happens to the cells of a sweep: finished once, resumed, failed, changed, set aside."""

from __future__ import annotations

import errno
import itertools
import json
import logging
import os
import shutil
import tarfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.experiments.sweep_world import InlineEngine, results, write_recipe
from tests.worlds.small_data import write_small_data

import splitveil as sv
from splitveil.attacks.retrieval import RetrievalAttack
from splitveil.audit.run import audit_run
from splitveil.core import plug_ins
from splitveil.core.code_version import code_version
from splitveil.core.config import load_config
from splitveil.core.errors import UsageError
from splitveil.core.recipes import recipe_names
from splitveil.core.run_folder import RunFolder
from splitveil.data.sources import FACES
from splitveil.experiments.compare.collect import collect
from splitveil.experiments.discover import find_runs
from splitveil.experiments.sweep import api, live, runner
from splitveil.experiments.sweep.api import read_sweep, run_sweep
from splitveil.experiments.sweep.cells import address, expand
from splitveil.experiments.sweep.folder import SweepFolder, note_audit
from splitveil.experiments.sweep.live import Progress, Settings
from splitveil.experiments.sweep.recipe import load_sweep
from splitveil.experiments.sweep.runner import Task, run_cell
from splitveil.experiments.sweep.table import table


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the cells that were really run."""
    found: list[str] = []
    monkeypatch.setattr(InlineEngine, "ran", found)
    monkeypatch.setattr(api, "make_engine", lambda settings, workers: InlineEngine())
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """At one place for all tests: a cell's address tells where its data are."""
    path = tmp_path_factory.mktemp("data") / "small.npz"
    write_small_data(path)
    return path


@pytest.fixture
def recipe(data: Path, tmp_path: Path) -> Path:
    return write_recipe(tmp_path, data)


@pytest.fixture(scope="module")
def one_cell(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of which one cell, `none` with seed 1, is finished."""
    folder = tmp_path_factory.mktemp("one")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "make_engine", lambda settings, workers: InlineEngine())
        go(write_recipe(folder, data), folder / "sweep", methods=["none"], seeds=[1])
    return folder / "sweep"


@pytest.fixture
def swept(one_cell: Path, tmp_path: Path, ran: list[str]) -> Path:
    """A copy of that sweep; its cell counts among those that ran."""
    shutil.copytree(one_cell, tmp_path / "sweep")
    ran.extend(path.name for path in (one_cell / "cells").iterdir())
    return tmp_path / "sweep"


def go(recipe: Path, out: Path, settings: dict[str, Any] | None = None, **given: Any) -> dict[str, Any]:
    return run_sweep(load_sweep(recipe, **given), Settings(out, device="cpu", **(settings or {})))


def test_every_cell_is_an_ordinary_run_folder_and_runs_once(recipe: Path, tmp_path: Path, ran: list[str]) -> None:
    out = tmp_path / "sweep"
    seen: list[Progress] = []
    tree = run_sweep(load_sweep(recipe), Settings(out, device="cpu"), seen.append)
    assert [(c["method"], c["seed"], c["status"]) for c in tree["cells"]] == [
        ("none", 1, "done"),
        ("none", 2, "done"),
        ("gated", 1, "done"),
        ("gated", 2, "done"),
    ]
    place = {cell["id"]: (cell["method"], cell["seed"]) for cell in tree["cells"]}
    assert [place[cell_id] for cell_id in ran] == [("none", 1), ("gated", 1), ("none", 2), ("gated", 2)]  # by seed
    assert len(find_runs([out])) == 4
    for cell in tree["cells"]:
        run = RunFolder.open(out / "cells" / cell["id"])
        assert run.config().seed == cell["seed"]
        assert (run.read_json("manifest.json") or {})["status"] == "finished"
        assert (run.read_json("result.json") or {})["accuracy_late"] == cell["accuracy"]
        assert list((run.read_json("audit/audit.json") or {})["attacks"]) == ["linear"]
        assert [path.name for path in run.checkpoints.iterdir()] == ["model.safetensors"]
        assert cell["seconds"] > 0
    assert [(p.done, p.total) for p in seen] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert seen[-1].fraction == 1
    before = results(out)
    assert len(ran) == 4
    go(recipe, out)
    assert len(ran) == 4
    assert results(out) == before


def test_more_seeds_and_more_audits_only_add_what_is_missing(recipe: Path, swept: Path, ran: list[str]) -> None:
    trained = (swept / "cells" / ran[0] / "result.json").stat().st_mtime_ns
    tree = go(recipe, swept, methods=["none"], seeds=[1, 2], modes=["training_time", "inference_time"])
    assert [cell["status"] for cell in tree["cells"]] == ["done", "done"]
    assert (swept / "cells" / ran[0] / "result.json").stat().st_mtime_ns == trained
    for cell in tree["cells"]:
        modes = [
            json.loads((swept / "cells" / cell["id"] / name / "audit.json").read_text())["mode"]
            for name in ("audit", "audit-inference_time")
        ]
        assert modes == ["training_time", "inference_time"]


def test_a_failing_cell_is_recorded_and_the_others_go_on(
    recipe: Path, tmp_path: Path, ran: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "sweep"
    grid = {"train.batch_size": [9999, 32]}  # a batch larger than the data is found out when training starts
    tree = go(recipe, out, methods=["gated"], seeds=[1], grid=grid)
    assert [cell["status"] for cell in tree["cells"]] == ["failed", "done"]
    assert "batch_size" in tree["cells"][0]["error"]
    error = json.loads((out / "cells" / tree["cells"][0]["id"] / "error.json").read_text())
    assert "Traceback" in error["traceback"]
    assert "gated small.npz batch_size=9999 seed 1 failed" in caplog.text
    go(recipe, out, methods=["gated"], seeds=[1], grid=grid)
    assert len(ran) == 2  # a failure is a result too
    go(recipe, out, {"retry_failed": True}, methods=["gated"], seeds=[1], grid=grid)
    assert ran[2:] == [tree["cells"][0]["id"]]


def test_a_run_that_was_killed_before_its_manifest_said_finished_is_finished(
    recipe: Path, swept: Path, ran: list[str]
) -> None:
    run = RunFolder(swept / "cells" / ran[0])
    run.write_json("manifest.json", {**(run.read_json("manifest.json") or {}), "status": "running", "ended": None})
    (run.audit / "audit.json").unlink()
    (run.audit / ".00000.png.abc.part").touch()  # it was writing a picture
    go(recipe, swept, methods=["none"], seeds=[1])
    assert len(ran) == 2
    assert not list(run.path.rglob("*.part"))
    manifest = run.read_json("manifest.json") or {}
    assert manifest["status"] == "finished"
    assert manifest["ended"]


WITHOUT_A_SEED = '{"id": "x", "method": "none", "coordinates": {}, "data": "d", "modes": [], "made_by": {}}'


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cell.json", "{"),
        ("cell.json", WITHOUT_A_SEED),
        ("result.json", ""),
        ("result.json", '{"seconds": 1.0}'),
        ("config.toml", ""),
        ("config.toml", "[data"),
        ("manifest.json", "{"),
        ("metrics.jsonl", ""),
        ("audit/audit.json", '{"attacks": {"lin'),
        ("audit/audit.json", "[]"),
    ],
)
def test_a_damaged_cell_is_named_and_made_again(
    name: str, content: str, recipe: Path, swept: Path, ran: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    before = results(swept)
    (swept / "cells" / ran[0] / name).write_text(content)
    trained = (swept / "cells" / ran[0] / "checkpoints" / "model.safetensors").stat().st_mtime_ns
    tree = go(recipe, swept, methods=["none"], seeds=[1])
    assert [cell["status"] for cell in tree["cells"]] == ["done"]
    assert len(ran) == 2
    assert results(swept) == before
    assert name in caplog.text
    assert "damaged" in caplog.text
    again = (swept / "cells" / ran[0] / "checkpoints" / "model.safetensors").stat().st_mtime_ns
    assert (again == trained) == name.startswith("audit/")  # an audit needs no second training
    assert name.startswith("audit/") or (swept / ".aside" / "damaged" / ran[0]).is_dir()  # nothing is deleted
    go(recipe, swept, {"mixed": True}, methods=["none"], seeds=[1])
    assert len(ran) == 2  # and a damaged one does not come back


@pytest.mark.parametrize("damaged", [True, False])
def test_a_damaged_cell_is_lost_to_the_sweep_even_before_it_has_run_again(tmp_path: Path, damaged: bool) -> None:
    """A sweep may be stopped after it was set aside; --mixed brings back cells of other code, but not this one."""
    folder, maker = SweepFolder(tmp_path), {"code": "a", "torch": "b", "device": "cpu"}
    about = {"id": "c1", "method": "none", "coordinates": {}, "seed": 1, "data": "x", "modes": [], "made_by": maker}
    folder.run("c1").path.mkdir(parents=True)
    (folder.run("c1").path / "cell.json").write_text(json.dumps(about))
    folder.put_aside("c1", damaged=damaged)
    assert folder.ids() == []
    folder.bring_back("c1", {**maker, "code": "another"}, mixed=False)
    assert folder.ids() == []
    folder.bring_back("c1", {**maker, "code": "another"}, mixed=True)
    assert folder.ids() == ([] if damaged else ["c1"])


def test_a_cell_that_was_attacked_otherwise_since_is_attacked_again(
    recipe: Path, swept: Path, ran: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Else its table would hold a number of other attacks, without a word."""
    (cell,) = ran
    before = results(swept)
    audit_run(swept / "cells" / cell, attacks=["retrieval"], device="cpu")
    go(recipe, swept, methods=["none"], seeds=[1])
    assert ran == [cell, cell]
    assert "was attacked with other settings than the sweep's" in caplog.text
    assert results(swept) == before
    kept = sorted((swept / "cells" / cell / "audit" / "earlier").glob("*/audit.json"))
    assert [*json.loads(kept[-1].read_text())["attacks"]] == ["retrieval"]  # nothing is lost
    go(recipe, swept, methods=["none"], seeds=[1])
    assert len(ran) == 2


@pytest.mark.parametrize("meanwhile", ["nothing", "another audit"])
def test_an_audit_that_a_killed_sweep_could_not_note_is_noted_by_the_next(
    recipe: Path, swept: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    """Else nobody would find out that somebody has attacked the cell otherwise since."""
    before = results(swept)
    cell = swept / "cells" / ran[0]
    (own,) = json.loads((cell / "cell.json").read_text())["audits"].values()
    (cell / "audit" / "audit.json").unlink()

    def killed(run: RunFolder, mode: str, signature: str) -> None:
        if signature:
            raise KeyboardInterrupt
        note_audit(run, mode, signature)

    with monkeypatch.context() as patch:
        patch.setattr(runner, "note_audit", killed)
        with pytest.raises(KeyboardInterrupt):
            go(recipe, swept, methods=["none"], seeds=[1])
    written = (cell / "audit" / "audit.json").stat().st_mtime_ns
    if meanwhile == "another audit":
        audit_run(cell, attacks=["retrieval"], device="cpu")
    tree = go(recipe, swept, methods=["none"], seeds=[1])
    assert [one["status"] for one in tree["cells"]] == ["done"]
    assert results(swept) == before
    assert json.loads((cell / "cell.json").read_text())["audits"] == {"training_time": own}
    attacked_again = (cell / "audit" / "audit.json").stat().st_mtime_ns != written
    assert attacked_again == (meanwhile == "another audit")
    ran.clear()
    go(recipe, swept, methods=["none"], seeds=[1])
    assert ran == []


def test_damaged_weights_are_trained_again_only_where_an_audit_needs_them(
    recipe: Path, swept: Path, ran: list[str]
) -> None:
    before = results(swept)
    cell = swept / "cells" / ran[0]
    weights = (cell / "checkpoints" / "model.safetensors").read_bytes()
    (cell / "checkpoints" / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    go(recipe, swept, methods=["none"], seeds=[1])
    assert len(ran) == 1
    (cell / "audit" / "audit.json").write_text("{")
    go(recipe, swept, methods=["none"], seeds=[1])
    assert len(ran) == 2
    assert results(swept) == before


@pytest.mark.parametrize("name", recipe_names())
def test_a_cells_address_survives_its_config_file(name: str, tmp_path: Path) -> None:
    """Otherwise every cell of the recipe would be taken for damaged."""
    for place, cell in enumerate(expand(load_sweep(name))):
        path = tmp_path / f"{place}.toml"
        path.write_text(cell.config.to_toml())
        assert address(load_config(path)) == cell.id


def test_on_a_full_disk_a_cell_fails_in_words_and_runs_again_later(
    recipe: Path, tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even error.json can be written; then the sweep's own table says it."""

    def full(path: Path, value: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    out = tmp_path / "sweep"
    monkeypatch.setattr("splitveil.core.run_folder.write_json", full)
    tree = go(recipe, out, methods=["none"], seeds=[1])
    assert [cell["status"] for cell in tree["cells"]] == ["failed"]
    assert tree["cells"][0]["error"].startswith("No space left on device: ")
    monkeypatch.undo()
    monkeypatch.setattr(api, "make_engine", lambda settings, workers: InlineEngine())
    tree = go(recipe, out, methods=["none"], seeds=[1])
    assert [cell["status"] for cell in tree["cells"]] == ["done"]


def test_an_unexpected_error_is_recorded_with_its_name(
    recipe: Path, tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **options: object) -> None:
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr("splitveil.audit.run.audit_run", broken)
    tree = go(recipe, tmp_path / "sweep", methods=["none"], seeds=[1])
    assert tree["cells"][0]["error"] == "ZeroDivisionError: by nought"
    monkeypatch.undo()
    monkeypatch.setattr(api, "make_engine", lambda settings, workers: InlineEngine())
    tree = go(recipe, tmp_path / "sweep", {"retry_failed": True}, methods=["none"], seeds=[1])
    assert [(cell["status"], cell["error"]) for cell in tree["cells"]] == [("done", None)]


def test_an_attack_that_broke_down_is_told_and_tried_again(
    recipe: Path, tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe.write_text(recipe.read_text().replace('["linear"]', '["linear", "retrieval"]'))
    whole = RetrievalAttack.run

    def broken(self: RetrievalAttack, *args: object, **options: object) -> None:
        raise MemoryError("too large")

    monkeypatch.setattr(RetrievalAttack, "run", broken)
    tree = go(recipe, tmp_path / "sweep", methods=["none"], seeds=[1])
    assert [cell["status"] for cell in tree["cells"]] == ["done"]
    assert "without retrieval (training_time): MemoryError: too large" in table(tree)
    trained = (tmp_path / "sweep" / "cells" / ran[0] / "result.json").stat().st_mtime_ns
    monkeypatch.setattr(RetrievalAttack, "run", whole)
    go(recipe, tmp_path / "sweep", methods=["none"], seeds=[1])
    assert len(ran) == 1
    tree = go(recipe, tmp_path / "sweep", {"retry_failed": True}, methods=["none"], seeds=[1])
    assert len(ran) == 2
    assert "without" not in table(tree)
    assert tree["cells"][0]["failed_attacks"] == {}
    assert (tmp_path / "sweep" / "cells" / ran[0] / "result.json").stat().st_mtime_ns == trained


def test_cells_of_other_code_are_set_aside_named_and_run_again(
    recipe: Path, tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "sweep"
    old = go(recipe, out, methods=["none"])
    before = results(out)
    _pretend(monkeypatch, "another")
    new = go(recipe, out, methods=["none"], seeds=[1])
    names = sorted(f"{cell['id']} (none, seed {cell['seed']})" for cell in old["cells"])
    assert f"2 cells made with other code: {names[0]}, {names[1]}" in caplog.text
    assert [cell["id"] for cell in new["cells"]] == [old["cells"][0]["id"]]  # nothing of the old code is in the table
    assert [run.name for run in find_runs([out])] == [old["cells"][0]["id"]]
    assert new["cells"][0]["made_by"]["code"] == "another"
    assert len(ran) == 3
    _pretend(monkeypatch, code_version())
    go(recipe, out, methods=["none"])  # back to the old code: its cells come back and nothing runs
    assert len(ran) == 3
    assert results(out) == before


def test_after_an_edit_of_a_plug_in_its_cells_run_again_and_no_others(
    recipe: Path, tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def edited(code: str) -> None:
        def packages_of(family: str, names: Iterable[str]) -> dict[str, str]:
            return {"someones": code} if family == "surrogates" and "gated" in names else {}

        monkeypatch.setattr(plug_ins, "packages_of", packages_of)

    out, short = tmp_path / "sweep", ["train.epochs=1"]
    edited("one")
    old = go(recipe, out, seeds=[1], overrides=short)
    go(recipe, out, seeds=[1], overrides=short)
    assert len(ran) == 2
    edited("two")
    new = go(recipe, out, seeds=[1], overrides=short)
    assert "1 cell made with other code of a plug-in: " in caplog.text
    assert ran[2:] == [cell["id"] for cell in new["cells"] if cell["method"] == "gated"]
    makers = [{cell["method"]: cell["made_by"].get("plug_ins") for cell in tree["cells"]} for tree in (old, new)]
    assert makers[0]["none"] is makers[1]["none"] is None
    assert makers[0]["gated"] != makers[1]["gated"]
    edited("one")  # back: its cell comes back and nothing runs
    go(recipe, out, seeds=[1], overrides=short)
    assert len(ran) == 3


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_cells_of_other_pictures_under_the_same_path_run_again(
    kind: str, small_data: Path, tmp_path: Path, ran: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    def put(brightness: int) -> None:
        if kind == "file":
            with np.load(small_data) as file:
                content = dict(file)
            content["train_x"] = np.full_like(content["train_x"], brightness)
            np.savez(own, **content)
            return
        for part, name, number in itertools.product(("train", "test"), ("a", "b"), range(8)):
            picture = own / part / name / f"{number}.png"
            picture.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 8), brightness + number).save(picture)

    own = tmp_path / ("own.npz" if kind == "file" else "own")
    put(10)
    recipe, out, short = write_recipe(tmp_path, own), tmp_path / "sweep", ["train.epochs=1"]
    old = go(recipe, out, methods=["none"], seeds=[1], overrides=short)
    if kind == "folder":  # what is no picture is not read
        (own / "train" / "a" / "notes.txt").write_text("bought in May")
    go(recipe, out, methods=["none"], seeds=[1], overrides=short)
    assert len(ran) == 1
    put(90)
    new = go(recipe, out, methods=["none"], seeds=[1, 2], overrides=short)
    assert "1 cell made with other pictures: " in caplog.text
    assert ran == [old["cells"][0]["id"], *(cell["id"] for cell in new["cells"])]
    assert len({cell["made_by"]["pictures"] for cell in [*old["cells"], *new["cells"]]}) == 2
    put(10)
    assert go(recipe, out, methods=["none"], seeds=[1], overrides=short)["cells"][0] == old["cells"][0]  # it comes back
    assert len(ran) == 3


def test_cells_of_other_pictures_under_the_same_name_run_again(
    small_data: Path, tmp_path: Path, ran: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faces are anybody's own file: no published checksum tells one from another."""

    def put(brightness: int) -> None:
        with np.load(small_data) as file:
            content = dict(file)
        np.savez(tmp_path / "own.npz", **content | {"train_x": np.full_like(content["train_x"], brightness)})
        (tmp_path / "root/faces.safetensors").unlink(missing_ok=True)
        FACES.store(tmp_path / "root", str(tmp_path / "own.npz"), lambda *_: None)

    monkeypatch.setenv("SPLITVEIL_DATA", str(tmp_path / "root"))
    recipe, out = write_recipe(tmp_path, small_data), tmp_path / "sweep"
    asked: dict[str, Any] = {"data": ["faces"], "methods": ["none"], "seeds": [1], "overrides": ["train.epochs=1"]}
    for brightness, runs in ((10, 1), (10, 1), (90, 2)):
        put(brightness)
        go(recipe, out, **asked)
        assert len(ran) == runs
    assert "1 cell made with other pictures: " in caplog.text


def test_cells_whose_pictures_are_gone_stay_in_the_table(
    small_data: Path, tmp_path: Path, ran: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody can tell whether the recipe still makes them; that it has other settings now was not true."""
    other = Path(shutil.copy(small_data, tmp_path / "other.npz"))
    recipe, out = write_recipe(tmp_path, small_data), tmp_path / "sweep"
    asked: dict[str, Any] = {"methods": ["none"], "seeds": [1], "overrides": ["train.epochs=1"]}
    before = go(recipe, out, data=[str(small_data), str(other)], **asked)
    other.unlink()
    after = go(recipe, out, data=[str(small_data)], **asked)
    assert "set aside" not in caplog.text
    assert after["cells"] == before["cells"]
    assert len(ran) == 2


def test_cells_run_again_when_the_run_they_start_from_was_trained_again(
    recipe: Path, tmp_path: Path, ran: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    start, out = tmp_path / "start", tmp_path / "sweep"

    def swept(seed: int) -> dict[str, Any]:
        shutil.rmtree(start, ignore_errors=True)
        sv.train(expand(load_sweep(recipe, methods=["none"], seeds=[seed]))[0].config, out=start)
        return go(recipe, out, methods=["none"], seeds=[1], overrides=["train.epochs=1", f"train.init_from={start}"])

    old, same, new = swept(5), swept(5), swept(6)
    assert "1 cell made with other weights to start from: " in caplog.text
    assert same["cells"] == old["cells"]
    assert ran == [old["cells"][0]["id"], new["cells"][0]["id"]]
    assert old["cells"][0]["id"] == new["cells"][0]["id"]
    assert old["cells"][0]["made_by"] != new["cells"][0]["made_by"]


def test_a_cell_that_does_not_say_which_files_it_saw_stays(recipe: Path, tmp_path: Path, ran: list[str]) -> None:
    out, start = tmp_path / "sweep", tmp_path / "start"
    sv.train(expand(load_sweep(recipe, methods=["none"], seeds=[5]))[0].config, out=start)
    short = ["train.epochs=1", f"train.init_from={start}"]
    (cell,) = go(recipe, out, methods=["none"], seeds=[1], overrides=short)["cells"]
    file = out / "cells" / cell["id"] / "cell.json"
    tree = json.loads(file.read_text())
    del tree["made_by"]["pictures"], tree["made_by"]["start"]
    file.write_text(json.dumps(tree))
    go(recipe, out, methods=["none"], seeds=[1], overrides=short)
    assert len(ran) == 1


def test_of_many_cells_that_are_set_aside_some_are_named(
    recipe: Path, tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go(recipe, tmp_path / "sweep", methods=["none"], seeds=[1, 2, 3, 4, 5, 6], overrides=["train.epochs=1"])
    _pretend(monkeypatch, "another")
    go(recipe, tmp_path / "sweep", methods=["none"], seeds=[7], overrides=["train.epochs=1"])
    (told,) = [line for line in caplog.messages if "6 cells made with other code" in line]
    assert told.count("(none, seed ") == 4
    assert told.endswith(", and 2 more")


def test_mixed_keeps_them_and_says_who_made_what(
    recipe: Path, swept: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _pretend(monkeypatch, "another")
    for asked in ([2], [1, 2]):  # also those that nobody asks for now
        tree = go(recipe, swept, {"mixed": True}, methods=["none"], seeds=asked)
        made = {cell["seed"]: cell["made_by"]["code"] for cell in tree["cells"]}
        assert made == {1: code_version(), 2: "another"}
        assert not (swept / ".aside").exists()
    assert len(ran) == 2
    modes = ["training_time", "inference_time"]
    tree = go(recipe, swept, {"mixed": True}, methods=["none"], modes=modes)
    assert tree["cells"][0]["made_by"]["code"] == f"{code_version()}+another"  # trained by one, attacked by the other


def test_a_worker_with_other_code_refuses_to_work(recipe: Path, tmp_path: Path, ran: list[str]) -> None:
    cell = api.expand(load_sweep(recipe))[0]
    outcome = run_cell(Task.of(cell, tmp_path, "cpu", {"code": "x", "torch": "y", "device": "cpu"}, "final"))
    assert "not the one that the sweep was started with" in outcome.error


def test_the_same_place_with_other_settings_is_never_in_one_table(
    recipe: Path, tmp_path: Path, ran: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "sweep"
    trial = go(recipe, out, methods=["none"], seeds=[1], overrides=["train.epochs=1"])
    full = go(recipe, out, methods=["none"], seeds=[1])
    assert len(full["cells"]) == 1
    assert full["cells"][0]["id"] != trial["cells"][0]["id"]
    assert "other settings" in caplog.text
    assert len(find_runs([out])) == 1
    go(recipe, out, methods=["none"], seeds=[1], overrides=["train.epochs=1"])
    assert len(ran) == 2  # the trial came back, nothing was lost


def test_equal_cells_run_once_with_a_warning(
    small_data: Path, tmp_path: Path, ran: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    recipe = write_recipe(tmp_path, small_data, '[[sweep.method]]\nname = "twin"\nsurrogate = "none"\n')
    tree = go(recipe, tmp_path / "sweep", methods=["none", "twin"], seeds=[1])
    assert len(tree["cells"]) == len(ran) == 1
    assert tree["cells"][0]["also"] == ["twin small.npz seed 1"]
    assert "twin small.npz seed 1 is the same run as none small.npz seed 1" in caplog.text
    go(recipe, tmp_path / "sweep", methods=["none", "twin"], seeds=[1, 1])
    assert "seed 1, twin small.npz seed 1 are the same run as none small.npz seed 1" in caplog.text


def test_the_table_can_be_made_again_from_the_cells(recipe: Path, tmp_path: Path, ran: list[str]) -> None:
    out = tmp_path / "sweep"
    tree = go(recipe, out)

    def order(cells):
        return sorted(cells, key=lambda cell: cell["id"])

    for damage in ("", "{"):
        (out / "sweep.json").write_text(damage)
        assert order(read_sweep(out)["cells"]) == order(tree["cells"])
    (out / "sweep.json").unlink()
    assert go(recipe, out)["cells"] == tree["cells"]
    assert len(ran) == 4
    with pytest.raises(UsageError, match="holds no sweep"):
        read_sweep(tmp_path)


@pytest.mark.parametrize(("keep", "left"), [("final", 1), ("none", 0), ("all", 5)])
def test_checkpoints_stay_as_asked(recipe: Path, tmp_path: Path, ran: list[str], keep: str, left: int) -> None:
    go(recipe, tmp_path / "sweep", {"checkpoints": keep}, methods=["none"], seeds=[1])
    assert len(list((tmp_path / "sweep" / "cells" / ran[0] / "checkpoints").iterdir())) == left


def test_a_cell_without_weights_is_trained_again_when_an_audit_needs_them(
    recipe: Path, tmp_path: Path, ran: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "sweep"
    go(recipe, out, {"checkpoints": "none"}, methods=["none"], seeds=[1])
    accuracy = json.loads((out / "cells" / ran[0] / "result.json").read_text())["accuracy_late"]
    tree = go(recipe, out, methods=["none"], seeds=[1], modes=["training_time", "inference_time"])
    assert [(cell["status"], cell["accuracy"]) for cell in tree["cells"]] == [("done", accuracy)]
    assert "the weights of none small.npz seed 1 are gone" in caplog.text
    assert len(list(out.glob(f".aside/*/{ran[0]}/audit/audit.json"))) == 1  # it was of other weights: not mixed in
    assert (out / "cells" / ran[0] / "audit-inference_time" / "audit.json").exists()


def test_what_was_exported_goes_on_in_another_folder(recipe: Path, tmp_path: Path, ran: list[str]) -> None:
    archive, first, second = tmp_path / "cells.tar.gz", tmp_path / "first", tmp_path / "second"

    def stop_after_two(progress: Progress) -> None:
        if progress.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(load_sweep(recipe), Settings(first, device="cpu", export=archive), stop_after_two)
    second.mkdir()
    with tarfile.open(archive) as packed:
        names = packed.getnames()
        packed.extractall(second, filter="data")
    files = ("cell.json", "config.toml", "manifest.json", "metrics.jsonl", "result.json")
    files += ("audit/audit.json", "audit/card.json")  # neither weights nor pictures
    assert set(names) == {"sweep.json", *(f"cells/{cell}/{file}" for cell in ran for file in files)}
    assert archive.stat().st_size < 100_000
    # what is unpacked is a sweep with two finished cells under their names, before anything runs
    comparison = collect([second])
    assert {(record.label, record.seed) for record in comparison.records} == {("gated", 1), ("none", 1)}
    assert any("2 of 4 cells have no result yet" in note for note in comparison.notes)
    tree = run_sweep(load_sweep(recipe), Settings(second, device="cpu", export=archive))
    assert [cell["status"] for cell in tree["cells"]] == ["done"] * 4
    assert len(ran) == len(set(ran)) == 4  # none of them ran twice
    with tarfile.open(archive) as packed:
        assert sum(name.endswith("/result.json") for name in packed.getnames()) == 4


def test_a_finished_sweep_is_exported_without_running_anything(recipe: Path, swept: Path, ran: list[str]) -> None:
    archive = swept.parent / "cells.tar.gz"
    go(recipe, swept, {"export": archive}, methods=["none"], seeds=[1])
    assert len(ran) == 1
    with tarfile.open(archive) as packed:
        assert f"cells/{ran[0]}/result.json" in packed.getnames()


def test_compiled_code_is_there_for_the_next_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    compiled: list[object] = []

    def backend(graph: Any, inputs: list[Any]) -> Any:
        compiled.append(graph)
        return graph.forward

    def cell() -> None:
        torch.compile(_double, backend=backend)(torch.ones(2))
        runner._release_memory()

    torch._dynamo.reset()
    monkeypatch.setattr(runner, "_ended", itertools.count(1))
    monkeypatch.setattr(runner, "COMPILED_CELLS", 3)
    limit = torch._dynamo.config.recompile_limit
    try:
        for _ in range(3):
            cell()
        assert len(compiled) == 1
        assert torch._dynamo.config.recompile_limit >= runner.COMPILED_VERSIONS
        cell()
        assert len(compiled) == 2  # after so many cells the cache starts anew
    finally:
        torch._dynamo.config.recompile_limit = limit
        torch._dynamo.reset()


def _double(x: Any) -> Any:
    return x * 2


def test_a_sweep_leaves_the_folder_of_a_run_alone(recipe: Path, one_cell: Path, tmp_path: Path, ran: list[str]) -> None:
    run = shutil.copytree(find_runs([one_cell])[0], tmp_path / "run")
    before = sorted(run.rglob("*"))
    with pytest.raises(UsageError, match=r"run holds a run, which .* Choose another folder"):
        go(recipe, run)
    assert ran == []
    assert sorted(run.rglob("*")) == before
    assert find_runs([run]) == [run]


def test_two_sweeps_cannot_share_a_folder(recipe: Path, tmp_path: Path, ran: list[str]) -> None:
    def inside(progress: Progress) -> None:
        with pytest.raises(UsageError, match="Another process"):
            go(recipe, tmp_path / "sweep", methods=["none"], seeds=[1])

    tree = run_sweep(
        load_sweep(recipe, methods=["none"], seeds=[1]), Settings(tmp_path / "sweep", device="cpu"), inside
    )
    assert tree["cells"][0]["status"] == "done"


def test_an_interrupted_sweep_leaves_nothing_running_in_its_table(
    recipe: Path, tmp_path: Path, ran: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def stop(progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(load_sweep(recipe), Settings(tmp_path / "sweep", device="cpu"), stop)
    statuses = [cell["status"] for cell in read_sweep(tmp_path / "sweep")["cells"]]
    assert statuses == ["done", "waiting", "waiting", "waiting"]


def test_progress_counts_half_a_cell_for_its_training_and_half_for_its_audit(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four cells one runs, for three epochs and one audit."""
    clock = [100.0]
    monkeypatch.setattr(live.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(InlineEngine, "poll", lambda self, seconds: [])
    monkeypatch.setattr(InlineEngine, "running", lambda self: [cells[0].id])
    cells, seen = expand(load_sweep(recipe)), []
    sweep = live.Sweep("recipe", Settings(tmp_path / "sweep", device="cpu"), InlineEngine(), {})
    for cell in cells:
        sweep.add(cell)
    run = sweep.folder.run(cells[0].id)
    sweep.step(seen.append)
    run.append_metrics({"epoch": 1})
    sweep.step(seen.append)
    clock[0] += 60
    run.append_metrics({"epoch": 2})
    run.append_metrics({"epoch": 3})
    run.write_json("audit/audit.json", {})
    sweep.step(seen.append)
    parts = [0, 1 / 6, 1]
    assert [now.running for now in seen] == [((cells[0].label, pytest.approx(part)),) for part in parts]
    assert [now.fraction for now in seen] == pytest.approx([part / 4 for part in parts])
    assert seen[0].left is None  # nobody knows yet
    assert [now.left for now in seen[1:]] == pytest.approx([0, 180])  # a quarter took a minute
    assert [(now.done, now.failed, now.total) for now in seen] == [(0, 0, 4)] * 3
    sweep.expected = 8  # a search has not said all its cells
    assert sweep.progress().fraction == pytest.approx(1 / 8)


@pytest.mark.parametrize(
    ("attacks", "modes", "share"),
    [
        ({"decoder": {"epochs": 6}}, ["training_time"], 3 / 9),
        ({"decoder": {"epochs": 6}, "linear": {}}, ["training_time", "inference_time"], 3 / 15),
        ({"linear": {}}, ["training_time"], 1 / 2),
        (None, ["training_time"], 1 / 2),
    ],
)
def test_training_and_attack_count_by_their_epochs(
    recipe: Path, tmp_path: Path, attacks: dict[str, Any] | None, modes: list[str], share: float
) -> None:
    """The three epochs of the training are over; where no attack with epochs is named they count half."""
    cell = expand(load_sweep(recipe, modes=modes))[0]
    audit = cell.config.audit.model_copy(update={"attacks": attacks})
    cell = replace(cell, config=cell.config.model_copy(update={"audit": audit}))
    sweep = live.Sweep("recipe", Settings(tmp_path / "sweep", device="cpu"), InlineEngine(), {})
    sweep.add(cell)
    sweep.entries[cell.id]["status"] = "running"
    for epoch in (1, 2, 3):
        sweep.folder.run(cell.id).append_metrics({"epoch": epoch})
    assert [part for _, part in sweep.progress().running] == [pytest.approx(share)]


def test_an_unknown_engine_is_refused(recipe: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="local or ray"):
        go(recipe, tmp_path / "sweep", {"engine": "dask"})


@pytest.mark.parametrize(("device", "workers", "threads"), [("cpu", 2, 1), ("cuda", 4, 3), ("cuda", 99, 1)])
def test_threads_are_shared_out(monkeypatch: pytest.MonkeyPatch, device: str, workers: int, threads: int) -> None:
    set_to: list[int] = []
    monkeypatch.setattr("torch.set_num_threads", set_to.append)
    monkeypatch.setattr(runner, "cores", lambda: 12)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "7")
    runner.prepare_process(device, workers)
    assert set_to == [threads]
    assert os.environ["OMP_NUM_THREADS"] == str(threads)


def _pretend(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(api, "code_version", lambda: version)
    monkeypatch.setattr("splitveil.experiments.sweep.runner.code_version", lambda: version)
