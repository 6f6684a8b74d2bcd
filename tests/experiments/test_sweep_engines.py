"""Sweeps in real processes: the same bits from every engine, whoever is killed on the way."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest
from tests.experiments import sweep_world as world
from tests.worlds.small_data import write_small_data

from splitveil.core.locks import only_writer
from splitveil.experiments.sweep import api
from splitveil.experiments.sweep.cells import expand
from splitveil.experiments.sweep.engine import LocalEngine
from splitveil.experiments.sweep.live import Settings
from splitveil.experiments.sweep.recipe import load_sweep
from splitveil.experiments.sweep.runner import Task

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc").exists(), reason="looks into /proc")]

KILLS = int(os.environ.get("SPLITVEIL_SWEEP_KILLS", "1"))  # a start of torch each; 9 after a change of sweeps
MOMENTS = [  # file, and which time that it is about to appear
    "state-000004.json 2",  # one cell is finished, the other has half a checkpoint
    "result.json 1",
    "cell.json 1",
    "audit.json 2",
    "manifest.json 2",
    "model.safetensors 1",
    "gallery.json 1",
    "sweep.json 2",
    "config.toml 1",
]
PATIENCE = 900.0  # seconds until a test gives up waiting for another process; never reached when all is well


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two cells long enough to be killed in the middle."""
    folder = tmp_path_factory.mktemp("sweep")
    write_small_data(folder / "small.npz")
    path = world.write_recipe(folder, folder / "small.npz")
    text = path.read_text().replace("epochs = 3", "epochs = 6").replace("every = 1", "every = 2")
    path.write_text(text.replace("seeds = [1, 2]", "seeds = [1]"))
    return path


@pytest.fixture(scope="module")
def expected(recipe: Path) -> dict[str, object]:
    """The uninterrupted sweep."""
    return run_here(recipe, recipe.parent / "expected")


def run_here(recipe: Path, out: Path) -> dict[str, object]:
    """The sweep to its end, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "make_engine", lambda settings, workers: world.InlineEngine())
        api.run_sweep(load_sweep(recipe), Settings(out, device="cpu"))
    return world.results(out)


def until(condition: Callable[[], object], what: str) -> object:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited in vain for {what}")


def cells_in_training(out: Path) -> Iterator[Path]:
    """Runs that have a checkpoint and no result yet."""
    for state in out.glob("cells/*/checkpoints/state-*.json"):
        if not (state.parents[1] / "result.json").exists():
            yield state.parents[1]


def holders(path: Path) -> list[int]:
    """Processes that have a file open."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it has ended, or belongs to somebody else
            for file in os.scandir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    if os.readlink(file) == str(path):
                        found.append(int(pid))
    return found


def start(recipe: Path, out: Path, *options: str, **more: str) -> subprocess.Popen[str]:
    command, environment = world.command(recipe, out, *options), world.environment() | more
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True)


@pytest.fixture
def endless(recipe: Path) -> Path:
    """Cells that cannot come to their end before a signal, however long a busy machine takes to send it."""
    path = recipe.with_name("endless.toml")  # beside the data
    path.write_text(recipe.read_text().replace("epochs = 6", "epochs = 100000"))
    return path


def deadly(folder: Path, deaths: int) -> dict[str, str]:
    """What makes so many workers die after four epochs of a cell (see deadly/sitecustomize.py); each takes a file."""
    folder.mkdir()
    for number in range(deaths):
        (folder / str(number)).touch()
    return {**before_all_else("deadly"), "SPLITVEIL_TEST_DEATHS": str(folder)}


def before_all_else(name: str) -> dict[str, str]:
    """What makes Python load sitecustomize.py from the folder of this name."""
    path = os.pathsep.join([str(Path(__file__).with_name(name)), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYTHONPATH": path}


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_two_workers_of_which_one_is_killed_give_the_same_bits(
    engine: str, recipe: Path, expected: dict[str, object], tmp_path: Path
) -> None:
    if engine == "ray":
        pytest.importorskip("ray")
    out, deaths = tmp_path / engine, tmp_path / "deaths"
    sweep = start(recipe, out, "--engine", engine, "--workers", "2", **deadly(deaths, 1))
    _, errors = sweep.communicate(timeout=PATIENCE)
    assert sweep.returncode == 0, errors
    assert list(deaths.iterdir()) == []
    assert world.results(out) == expected
    logs = [path.read_text() for path in out.glob("cells/*/train.log")]
    assert sum("resuming after epoch 4" in log for log in logs) == 1
    if engine == "local":
        assert "a worker died (signal 9)" in errors


@pytest.mark.parametrize("moment", MOMENTS[:KILLS])
def test_a_sweep_that_is_killed_ends_with_the_same_table(
    moment: str, recipe: Path, expected: dict[str, object], tmp_path: Path
) -> None:
    out = tmp_path / "killed"
    with start(recipe, out, "--workers", "1", **before_all_else("killing"), SPLITVEIL_TEST_MOMENT=moment) as sweep:
        assert sweep.wait(PATIENCE) == -signal.SIGKILL
    assert run_here(recipe, out) == expected


@pytest.mark.parametrize("how", ["ctrl-c", "sigterm, ray", "time limit"])
def test_a_sweep_that_is_told_to_stop_stops_cleanly(how: str, endless: Path, tmp_path: Path) -> None:
    out = tmp_path / "stopped"
    engine = "ray" if "ray" in how else "local"
    if engine == "ray":
        pytest.importorskip("ray")
    sweep = start(endless, out, "--workers", "1", "--engine", engine)
    cell = until(lambda: next(cells_in_training(out), None), "a cell in training")
    if how == "time limit":  # as timeout(1) does: the sweep and its workers at once
        os.killpg(sweep.pid, signal.SIGTERM)
    else:
        sweep.send_signal(signal.SIGTERM if "sigterm" in how else signal.SIGINT)
    _, errors = sweep.communicate(timeout=PATIENCE)
    assert sweep.returncode == 130
    assert "run the same command again to go on" in errors
    assert "Traceback" not in errors
    assert holders_of_any(out) == []
    assert json.loads((cell / "manifest.json").read_text())["status"] == "interrupted"  # type: ignore[operator]
    statuses = [entry["status"] for entry in json.loads((out / "sweep.json").read_text())["cells"]]
    assert "running" not in statuses
    assert "waiting" in statuses


def test_the_death_of_ray_itself_is_no_cells_fault(endless: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    out = tmp_path / "ray"
    sweep = start(endless, out, "--workers", "1", "--engine", "ray")
    until(lambda: next(cells_in_training(out), None), "a cell in training")
    children = Path(f"/proc/{sweep.pid}/task").glob("*/children")
    (raylet,) = [pid for file in children for pid in file.read_text().split() if name_of(pid) == "raylet"]
    os.kill(int(raylet), signal.SIGTERM)
    _, errors = sweep.communicate(timeout=PATIENCE)
    assert sweep.returncode == 1
    assert "Ray died on this machine" in errors
    assert "run the same command again" in errors
    assert list(out.glob("cells/*/error.json")) == []
    assert {cell["status"] for cell in json.loads((out / "sweep.json").read_text())["cells"]} == {"waiting"}


def test_a_worker_that_is_stopped_while_it_starts_leaves_no_traceback(recipe: Path, tmp_path: Path) -> None:
    cell = expand(load_sweep(recipe))[0]
    engine = LocalEngine(1, "cpu", tmp_path / "workers.log")
    with only_writer(tmp_path / "s" / ".locks" / cell.id):  # where it is quicker than this test, it waits for its cell
        engine.submit(Task.of(cell, tmp_path / "s", "cpu", {}, "final"))
        try:
            until((tmp_path / "workers.log").exists, "a worker that loads torch")
        finally:
            engine.close()
    assert not engine.crew[0].process.is_alive()
    assert (tmp_path / "workers.log").read_text() == ""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_ctrl_c_while_a_worker_starts_reaches_the_sweep_alone(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = expand(load_sweep(recipe))[0]
    blocked = []
    start_process = SpawnProcess.start

    def start(process: SpawnProcess) -> None:
        signal.raise_signal(signal.SIGINT)
        start_process(process)
        status = Path(f"/proc/{process.pid}/status").read_text()
        blocked.append(int(re.search(r"SigBlk:\s*(\w+)", status)[1], 16) >> (signal.SIGINT - 1) & 1)  # type: ignore[index]
        process.kill()

    monkeypatch.setattr(SpawnProcess, "start", start)
    engine = LocalEngine(1, "cpu", tmp_path / "workers.log")
    with pytest.raises(KeyboardInterrupt):
        engine.submit(Task.of(cell, tmp_path / "s", "cpu", {}, "final"))
    engine.close()
    assert blocked == [1]


def test_a_cell_that_always_kills_its_worker_is_given_up(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splitveil.experiments.sweep.engine._work", world.die_over_a_task)
    cell, log = expand(load_sweep(recipe))[0], tmp_path / "workers.log"
    engine = LocalEngine(1, "cpu", log)
    engine.submit(Task.of(cell, tmp_path / "s", "cpu", {}, "final"))
    try:
        (outcome,) = until(lambda: engine.poll(1.0), "the end of a cell")  # type: ignore[misc]
    finally:
        engine.close()
    assert outcome.id == cell.id
    assert "died 3 times over this cell (the last time by signal 9)" in outcome.error
    assert outcome.error == json.loads((tmp_path / "s" / "cells" / cell.id / "error.json").read_text())["error"]
    assert log.read_text() == "died\n" * 3, "there was no fourth attempt"


def holders_of_any(out: Path) -> list[int]:
    return [pid for lock in out.glob(".locks/*/.lock") for pid in holders(lock)]


def name_of(pid: str) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()
