"""Atomic files and run folders."""

from __future__ import annotations

import errno
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from splitveil.core.errors import RunFolderError, UsageError
from splitveil.core.files import append_line, held, only_writer, save_atomic, sha256, write_atomic, write_json
from splitveil.core.run_folder import RunFolder
from splitveil.core.seeding import derive_seed, generator


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_atomic(path, "old")

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        save_atomic(path, fail)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of a handle that was not closed
def test_ctrl_c_at_any_line_of_a_write_leaves_a_whole_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_atomic(path, "old")
    for stop in itertools.count():
        lines = itertools.count()

        def interrupt(frame: FrameType, event: str, _: object, lines: Iterator[int] = lines, stop: int = stop) -> Any:
            if frame.f_code is not save_atomic.__code__:
                return None
            if event == "line" and next(lines) == stop:
                raise KeyboardInterrupt
            return interrupt

        before = sys.gettrace()
        sys.settrace(interrupt)
        try:
            write_atomic(path, "new")
            break  # it has no more lines
        except KeyboardInterrupt:
            assert path.read_text() in ("old", "new")
            assert [p.name for p in tmp_path.iterdir()] == ["a.txt"], f"line {stop}"
        finally:
            sys.settrace(before)
    assert stop > 5


def test_a_file_gets_its_name_when_its_content_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    flushed: list[tuple[bytes, bool]] = []
    monkeypatch.setattr("os.fsync", lambda handle: flushed.append((os.pread(handle, 99, 0), path.exists())))
    write_atomic(path, "whole")
    assert flushed == [(b"whole", False)]


def test_an_error_of_writing_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.md").mkdir()  # a folder cannot be replaced by a file
    with pytest.raises(OSError, match=r"a\.md") as caught:
        write_atomic(tmp_path / "a.md", "text")
    assert ".part" not in str(caught.value)

    def full(temporary: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left") as caught:
        save_atomic(tmp_path / "b.md", full)
    assert caught.value.filename == str(tmp_path / "b.md")


def test_json_refuses_nan_and_keeps_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}


def test_checksum_is_sha256(tmp_path: Path) -> None:
    path = tmp_path / "abc"
    path.write_bytes(b"abc")
    assert sha256(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_metrics_survive_a_torn_line_and_can_be_cut_back(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for epoch in (1, 2, 3):
        folder.append_metrics({"epoch": epoch})
    append_line(tmp_path / "metrics.jsonl", "[" * 100_000)
    append_line(tmp_path / "metrics.jsonl", '{"epoch": 4, "acc')
    assert [row["epoch"] for row in folder.metrics()] == [1, 2, 3]
    folder.truncate_metrics(2)
    assert [row["epoch"] for row in folder.metrics()] == [1, 2]


@pytest.mark.parametrize("epoch", ["null", '"2"', "[]", "{}", "NaN"])
def test_a_row_of_no_epoch_is_cut_away(tmp_path: Path, epoch: str) -> None:
    append_line(tmp_path / "metrics.jsonl", f'{{"epoch": 1}}\n{{"epoch": {epoch}}}\n{{"accuracy": 1}}\n{{"epoch": 2}}')
    RunFolder(tmp_path).truncate_metrics(2)
    assert RunFolder(tmp_path).metrics() == [{"epoch": 1}, {"epoch": 2}]


def test_what_is_not_a_run_folder_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="There is no run folder"):
        RunFolder.open(tmp_path / "absent")
    with pytest.raises(RunFolderError, match=r"no config\.toml"):
        RunFolder.open(tmp_path)
    (tmp_path / "result.json").write_text("{")
    with pytest.raises(RunFolderError, match="damaged"):
        RunFolder(tmp_path).read_json("result.json")


def test_streams_of_different_purposes_differ_and_repeat() -> None:
    assert derive_seed(1, "noise", 2) == derive_seed(1, "noise", 2)
    assert len({derive_seed(1, "noise", 2), derive_seed(1, "noise", 3), derive_seed(2, "noise", 2)}) == 3
    assert generator(5, "a").initial_seed() == derive_seed(5, "a")


class TestOnlyWriter:
    def test_one_who_only_looks_does_not_keep_a_writer_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fcntl = pytest.importorskip("fcntl")
        (tmp_path / ".lock").touch()
        with (tmp_path / ".lock").open() as looking:
            fcntl.flock(looking, fcntl.LOCK_SH)
            monkeypatch.setattr(time, "sleep", lambda _: fcntl.flock(looking, fcntl.LOCK_UN))
            with only_writer(tmp_path), (tmp_path / ".lock").open() as other, pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def test_a_second_writer_is_told(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("fcntl")
        waits: list[float] = []
        monkeypatch.setattr(time, "sleep", waits.append)
        with only_writer(tmp_path), pytest.raises(UsageError, match="Another process"), only_writer(tmp_path):
            pass
        assert 0.5 < sum(waits) <= 1

    @pytest.mark.parametrize("before", ["nothing", "a folder", "a file"])
    def test_work_that_is_refused_leaves_what_it_found(self, tmp_path: Path, before: str) -> None:
        folder = tmp_path / "a" / "b"
        if before != "nothing":
            folder.mkdir(parents=True)
        if before == "a file":
            (folder / "mine").touch()
        found = set(tmp_path.rglob("*"))
        with pytest.raises(KeyError), only_writer(folder, tidy=True):
            raise KeyError
        assert set(tmp_path.rglob("*")) - {folder / ".lock"} == found
        assert (folder / ".lock").exists() == (before == "a file")  # beside files it does not matter

    def test_a_writer_that_is_turned_away_leaves_the_others_lock(self, tmp_path: Path) -> None:
        pytest.importorskip("fcntl")
        with only_writer(tmp_path, tidy=True):
            with pytest.raises(UsageError), only_writer(tmp_path, tidy=True):
                pass
            assert (tmp_path / ".lock").exists()

    def test_work_that_wrote_something_keeps_it(self, tmp_path: Path) -> None:
        with pytest.raises(FileExistsError), only_writer(tmp_path / "a", tidy=True):
            [(tmp_path / "a" / "first").touch(exist_ok=False) for _ in range(2)]
        assert (tmp_path / "a" / "first").exists()


def test_a_private_file_is_never_readable_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    real = Path.replace

    def replace(self: Path, target: Path) -> Path:
        modes.append(self.stat().st_mode & 0o777)
        return real(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    save_atomic(tmp_path / "mine", lambda temporary: temporary.write_text("x"), mode=0o600)
    save_atomic(tmp_path / "ours", lambda temporary: temporary.write_text("x"))
    assert modes == [0o600, 0o644]


def test_a_held_file_is_changed_by_one_at_a_time(tmp_path: Path) -> None:
    """Each reads, waits a moment and writes: without the lock most of the changes would be lost."""
    path = tmp_path / "new" / "count"

    def add(_: int) -> None:
        with held(path):
            count = int(path.read_text()) if path.exists() else 0
            time.sleep(0.002)
            path.write_text(str(count + 1))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(20)))
    assert path.read_text() == "20"
