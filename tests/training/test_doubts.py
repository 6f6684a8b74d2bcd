"""A run whose pictures, settings or weights are no longer those it was trained with says so, and does not go on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.worlds.small_data import write_small_data

import splitveil as sv
from splitveil.audit.run import audit_run
from splitveil.core.config import Config, load_config
from splitveil.core.errors import DataError
from splitveil.core.pins import other_pictures, other_weights, stated_checksum
from splitveil.experiments.loose import read_table
from splitveil.report.markup import told
from splitveil.training.checkpoint import save_weights
from splitveil.training.loaded_run import load_run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in its place, with the pictures beside it."""
    place = tmp_path_factory.mktemp("trained")
    write_small_data(place / "small.npz")
    config = load_config(
        data={"name": str(place / "small.npz")}, train={"epochs": 2, "batch_size": 32, "checkpoint_every": 1}
    )
    return sv.train(config, out=place / "run", device="cpu").path


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def more_pictures(finished: Path) -> Callable[[], None]:
    """Adds a picture to the data set of the run, and takes it away again at the end."""
    path = finished.parent / "small.npz"
    before = path.read_bytes()

    def add() -> None:
        arrays = dict(np.load(path))
        arrays["train_x"] = np.concatenate([arrays["train_x"], 255 - arrays["train_x"][:1]])
        arrays["train_y"] = np.concatenate([arrays["train_y"], arrays["train_y"][:1]])
        np.savez(path, **arrays)

    yield add
    path.write_bytes(before)


def doubts(run: Path, caplog: pytest.LogCaptureFixture) -> str:
    caplog.clear()
    found = " ".join(load_run(run, "cpu").doubts)
    assert all(sentence in caplog.text for sentence in found.split(". "))  # nobody who loads it is left in the dark
    return found


def test_what_is_as_it_was_raises_no_doubt(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    result = json.loads((run / "result.json").read_text())
    assert result["weights"] == stated_checksum(run / "checkpoints" / "model.safetensors")
    assert doubts(run, caplog) == ""
    (run / "result.json").unlink()
    assert doubts(run, caplog) == ""


def test_other_weights_settings_and_pictures_are_told_apart(
    run: Path, more_pictures: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    model = load_run(run, "cpu").model
    with torch.no_grad():
        next(model.parameters()).add_(0.1)
    save_weights(run / "checkpoints" / "model.safetensors", {"model": model})  # intact, but another model
    assert doubts(run, caplog).startswith("The weights are not")
    config = run / "config.toml"
    config.write_text(config.read_text().replace("privacy_weight = 16.0", "privacy_weight = 64.0"))
    assert doubts(run, caplog).startswith("The settings in config.toml are not")
    more_pictures()
    found = doubts(run, caplog)
    assert found.count("are not those that this run") == 3
    report = audit_run(run, attacks=["linear"], sanity=False, num_images=20, device="cpu")
    said = [warning for warning in report.warnings if "are not those that this run" in warning]
    assert " ".join(said) == found
    assert all(told(sentence).zh != sentence for sentence in said)


def test_an_editors_byte_order_mark_changes_no_setting_and_hides_none(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = run / "config.toml"
    config.write_text(config.read_text(), encoding="utf-8-sig")
    assert doubts(run, caplog) == ""
    before, problem = read_table(config)
    assert problem is None
    edited = config.read_text(encoding="utf-8-sig").replace("privacy_weight = 16.0", "privacy_weight = 64.0")
    config.write_text(edited, encoding="utf-8-sig")
    assert doubts(run, caplog).startswith("The settings in config.toml are not")
    assert read_table(config)[0] != before


def test_a_run_does_not_go_on_with_other_pictures(run: Path, more_pictures: Callable[[], None]) -> None:
    """Its parts would be cut anew, and what it has trained on could become what it is tested on."""
    config: Config = load_config(run / "config.toml")
    (run / "result.json").unlink()
    (run / "checkpoints" / "model.safetensors").unlink()
    (run / "checkpoints" / "state-000002.json").unlink()
    files = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    more_pictures()
    with pytest.raises(DataError, match="not those that this run began with"):
        sv.train(config, out=run, device="cpu", resume=True)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == files  # and nothing is lost


@pytest.mark.parametrize("content", [b"", b"junk", b"\x02\0\0\0\0\0\0\0{}", b"\xff" * 8, b"\x02\0\0\0\0\0\0\0[]"])
def test_a_file_that_states_nothing_says_nothing(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    assert not other_weights(path, {"weights": "0" * 64})
    assert not other_weights(tmp_path / "missing", {"weights": "0" * 64})


def test_pictures_are_compared_where_both_signatures_pin_them() -> None:
    assert not other_pictures("seed:1|data:91bd03aa", "data:91bd03aa|audit|tier:smoke")
    assert other_pictures("seed:1|data:91bd03aa", "data:0456ee4c|audit|tier:smoke")
    assert not other_pictures("seed:1|data:91bd03aa", "seed:1", None, 3)
