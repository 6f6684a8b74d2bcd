"""Which folders below a place are runs."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from tests.worlds.shut_folder import shut_folder

from splitveil.core.errors import UsageError
from splitveil.experiments.discover import find_runs


def make(folder: Path, sign: str = "config.toml") -> Path:
    """A folder with this file in it."""
    (folder / sign).parent.mkdir(parents=True, exist_ok=True)
    (folder / sign).touch()
    return folder


@pytest.mark.parametrize("sign", ["config.toml", "manifest.json", "metrics.jsonl", "result.json", "audit/audit.json"])
def test_any_file_of_a_run_makes_one(sign: str, tmp_path: Path) -> None:
    """A damaged or half-finished run must still be shown."""
    run = make(tmp_path / "runs" / "mine", sign)
    assert find_runs([run]) == find_runs([tmp_path]) == [run]


def test_runs_lie_at_most_four_folders_deep(tmp_path: Path) -> None:
    deep = make(tmp_path / "sweep" / "method" / "strength" / "seed")
    make(tmp_path / "a" / "b" / "c" / "d" / "e")
    assert find_runs([tmp_path]) == [deep]


def test_the_runs_of_a_sweep_are_its_cells(tmp_path: Path) -> None:
    sweep = make(make(tmp_path / "sweep"), "sweep.json")
    cell = make(sweep / "cells" / "0123456789ab")
    assert find_runs([sweep]) == [cell]


def test_each_is_found_once_in_the_order_given(tmp_path: Path) -> None:
    runs = [make(tmp_path / name) for name in ("c", "b", "a")]
    assert find_runs([runs[1], tmp_path, tmp_path / "a" / ".." / "c"]) == [runs[1], runs[2], runs[0]]


def test_what_a_run_keeps_and_what_is_hidden_are_no_runs(tmp_path: Path) -> None:
    for name in ("audit", "checkpoints", "explain", "gates", ".aside"):
        make(tmp_path / name / "inside")
    with pytest.raises(UsageError, match="no run folder in"):
        find_runs([tmp_path])
    with pytest.raises(UsageError, match="no run folder in an empty list"):
        find_runs([])


def test_an_artefact_is_no_run_and_is_called_by_its_name(tmp_path: Path) -> None:
    artefact = make(make(make(tmp_path / "art"), "edge.onnx"), "manifest.json")
    with pytest.raises(UsageError, match=r"art is an exported artefact, not a run. .*: splitveil audit .*art$"):
        find_runs([artefact])
    run = make(tmp_path / "run")
    assert find_runs([artefact, run]) == [run]


def test_links_are_followed_only_where_somebody_put_them_first(tmp_path: Path) -> None:
    """Further down one could lead back to where the search began."""
    run = make(tmp_path / "elsewhere" / "run")
    (tmp_path / "runs" / "below").mkdir(parents=True)
    (tmp_path / "runs" / "linked").symlink_to(run)
    (tmp_path / "runs" / "below" / "linked").symlink_to(make(tmp_path / "elsewhere" / "other"))
    assert find_runs([tmp_path / "runs"]) == [tmp_path / "runs" / "linked"]


def test_a_file_is_no_run_folder(tmp_path: Path) -> None:
    file = make(tmp_path, "result.json") / "result.json"
    with pytest.raises(UsageError, match="is a file, not a run folder") as told:
        find_runs([file])
    assert str(tmp_path) in told.value.hint


def test_folders_that_may_not_be_read_hide_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One whose audit is hidden counts as a run, or it would pass for one that was never attacked."""
    run = make(tmp_path / "run")
    hidden = make(tmp_path / "hidden", "audit/audit.json")
    make(tmp_path / "shut")
    shut_folder(hidden / "audit", monkeypatch)
    shut_folder(tmp_path / "shut", monkeypatch)
    assert find_runs([tmp_path]) == [hidden, run]
    assert caplog.messages == [f"warning: 1 folder may not be read; runs in there are left out: {tmp_path / 'shut'}"]


def test_folders_that_may_not_be_listed_are_told_once_to_who_keeps_looking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = make(tmp_path / "run")
    for name in ("a", "b"):
        make(tmp_path / name / "inside")
    look = os.scandir

    def scandir(folder: Path) -> Any:
        if folder.name in ("a", "b"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
        return look(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    told: set[Path] = set()
    assert find_runs([tmp_path], told) == find_runs([tmp_path], told) == [run]
    (sentence,) = caplog.messages
    assert sentence.endswith(
        f"2 folders may not be read; runs in there are left out: {tmp_path / 'a'}, {tmp_path / 'b'}"
    )
    find_runs([tmp_path])
    assert len(caplog.messages) == 2
    (run / "config.toml").unlink()
    with pytest.raises(UsageError, match="no run folder in"):
        find_runs([tmp_path])
    assert len(caplog.messages) == 3
