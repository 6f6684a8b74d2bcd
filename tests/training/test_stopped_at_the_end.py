"""Ctrl-C, SIGTERM and kill -9 in the moments when a run writes its first manifest and its last two files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import splitveil as sv
from splitveil.core.config import Config
from splitveil.core.run_folder import RunFolder

MakeConfig = Callable[..., Config]


@pytest.mark.parametrize("moment", ["result.json is there", "manifest.json is being written"])
def test_a_run_that_is_stopped_in_its_last_moment_is_finished(
    moment: str, make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = RunFolder.write_json, []

    def write(self: RunFolder, name: str, value: dict[str, Any]) -> None:
        asked.append((name, value.get("status")))
        if moment.startswith("manifest") and asked[-1] == ("manifest.json", "finished") and asked.count(asked[-1]) == 1:
            raise KeyboardInterrupt
        real(self, name, value)
        if moment.startswith("result") and name == "result.json":
            raise KeyboardInterrupt

    monkeypatch.setattr(RunFolder, "write_json", write)
    with pytest.raises(KeyboardInterrupt):
        sv.train(make_config(), out=tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    assert run.read_json("result.json") is not None
    manifest = run.read_json("manifest.json") or {}
    assert manifest["status"] == "finished"
    assert manifest["ended"]


def test_a_run_that_is_stopped_when_it_has_just_begun_is_interrupted(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = RunFolder.write_json

    def write(self: RunFolder, name: str, value: dict[str, Any]) -> None:
        real(self, name, value)
        if (name, value.get("status")) == ("manifest.json", "running"):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "write_json", write)
        with pytest.raises(KeyboardInterrupt):
            sv.train(make_config(), out=tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    assert (run.read_json("manifest.json") or {})["status"] == "interrupted"
    sv.train(make_config(), out=run.path, resume=True)
    assert (run.read_json("manifest.json") or {})["status"] == "finished"


def test_resuming_a_run_that_was_killed_before_its_last_line_says_that_it_is_finished(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    run = sv.train(make_config(), out=tmp_path / "run")
    whole = run.read_json("manifest.json") or {}
    run.write_json("manifest.json", {**whole, "status": "running", "ended": None})
    sv.train(make_config(), out=run.path, resume=True)
    mended = run.read_json("manifest.json") or {}
    assert mended["ended"]
    assert {**mended, "ended": None} == {**whole, "ended": None}


def test_resuming_a_finished_run_does_not_invent_a_manifest(make_config: MakeConfig, tmp_path: Path) -> None:
    run = sv.train(make_config(), out=tmp_path / "run")
    (run.path / "manifest.json").unlink()
    sv.train(make_config(), out=run.path, resume=True)
    assert not (run.path / "manifest.json").exists()
