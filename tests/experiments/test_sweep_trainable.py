"""Cells that can never train are named before the first cell starts, and do not stop the others."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.experiments.sweep_world import InlineEngine, write_recipe

from splitveil.core.config import load_config
from splitveil.experiments.sweep import api
from splitveil.experiments.sweep.api import run_sweep
from splitveil.experiments.sweep.cells import expand
from splitveil.experiments.sweep.live import Settings
from splitveil.experiments.sweep.recipe import load_sweep
from splitveil.experiments.sweep.runner import Outcome
from splitveil.experiments.sweep.trainable import untrainable
from splitveil.training.api import train


class Watched(InlineEngine):
    """Notes what was warned of when the first cell was asked for."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        super().__init__()
        self.caplog = caplog
        self.before: list[str] | None = None

    def poll(self, seconds: float) -> list[Outcome]:
        if self.before is None:
            self.before = [r.getMessage() for r in self.caplog.records if r.levelno >= logging.WARNING]
        return super().poll(seconds)


def test_they_are_named_at_once_and_the_others_run(small_data: Path, tmp_path: Path, caplog, monkeypatch) -> None:
    """168 of the 240 training pictures are the defender's."""
    engine = Watched(caplog)
    monkeypatch.setattr(api, "make_engine", lambda settings, workers: engine)
    more = '[sweep.grid]\n"train.batch_size" = [32, 9999]\n"data.limit" = [240, 2]\n'
    recipe = load_sweep(write_recipe(tmp_path, small_data, more), methods=["none"], seeds=[1])
    tree = run_sweep(recipe, Settings(tmp_path / "sweep", device="cpu"))
    assert engine.before is not None
    few = "data.limit = 2 leaves no training picture of class"
    large = "train.batch_size = 9999 is larger than the 168 training pictures. Lower the batch size."
    told = {line.partition(": ")[2] for line in engine.before[:-1]}
    assert f"none small.npz batch_size=9999 limit=240: {large}" in told
    (other,) = told - {f"none small.npz batch_size=9999 limit=240: {large}"}
    assert other.startswith(f"none small.npz batch_size=32 limit=2, none small.npz batch_size=9999 limit=2: {few}")
    assert {line.partition(" cannot train")[0] for line in engine.before[:-1]} == {"1 cell", "2 cells"}
    done = [cell["coordinates"] for cell in tree["cells"] if cell["status"] == "done"]
    assert done == [{"train.batch_size": 32, "data.limit": 240}]
    errors = {cell["error"] for cell in tree["cells"] if cell["status"] == "failed"}
    assert large in errors, "recorded as when nobody had looked before"


def test_networks_that_cannot_be_built_are_found(small_data: Path, tmp_path: Path) -> None:
    more = '[[sweep.method]]\nname = "cut"\nmodel = { cut = 99 }\n'
    more += '[[sweep.method]]\nname = "raw"\nsurrogate = { name = "enhanced", bank_space = "raw", proj_dim = 8 }\n'
    cells = expand(load_sweep(write_recipe(tmp_path, small_data, more)))
    found = untrainable(cells)
    assert {cell.method for cell, _ in found} == {"cut", "raw"}
    assert len(found) == 4, "each with both seeds"


def test_so_is_a_start_of_another_shape(small_data: Path, tmp_path: Path) -> None:
    config = load_config(data={"name": str(small_data)}, train={"epochs": 1, "batch_size": 32})
    train(config, out=tmp_path / "start", device="cpu")
    start = f'train = {{ init_from = "{tmp_path / "start"}" }}'
    more = f'[[sweep.method]]\nname = "same"\n{start}\n'
    more += f'[[sweep.method]]\nname = "other"\nmodel = {{ cut = 1 }}\n{start}\n'
    cells = expand(load_sweep(write_recipe(tmp_path, small_data, more), methods=["same", "other"], seeds=[1]))
    ((cell, why),) = untrainable(cells)
    assert cell.method == "other"
    assert why.startswith("train.init_from: the network of start differs")


def test_a_network_is_built_once_for_cells_that_share_it(small_data: Path, tmp_path: Path, monkeypatch) -> None:
    built = []
    from splitveil.training import setup

    real = setup.build_model
    monkeypatch.setattr(setup, "build_model", lambda *given: built.append(1) or real(*given))
    more = '[sweep.grid]\n"train.privacy_weight" = [1, 2, 4]\n'
    cells = expand(load_sweep(write_recipe(tmp_path, small_data, more)))
    assert len(cells) == 8
    assert untrainable(cells) == []
    assert len(built) == 2, "one for each method"


def test_to_look_needs_nothing_of_torchs_compiler(small_data: Path, tmp_path: Path, monkeypatch) -> None:
    """Counting operations imports it, which takes a second and more of every start of a sweep."""
    from splitveil.models import cost

    monkeypatch.setattr(cost, "FlopCounterMode", None)
    assert untrainable(expand(load_sweep(write_recipe(tmp_path, small_data)))) == []
