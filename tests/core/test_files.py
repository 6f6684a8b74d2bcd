"""Files that are either complete or absent."""

from __future__ import annotations

import errno
import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from splitveil.core.files import save_atomic, sha256, write_atomic, write_json


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


def test_a_private_file_is_never_readable_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    real = Path.replace

    def replace(self: Path, target: Path) -> Path:
        modes.append(self.stat().st_mode & 0o777)
        return real(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    save_atomic(tmp_path / "mine", lambda temporary: temporary.write_text("x"), mode=0o600)
    save_atomic(tmp_path / "ours", lambda temporary: temporary.write_text("x"))
    assert modes == [0o600, 0o666 & ~_umask()]


def test_a_name_that_is_no_utf8_does_not_stop_a_file_from_being_written(tmp_path: Path) -> None:
    write_atomic(tmp_path / "table.md", "l\udce4uf ±")
    assert (tmp_path / "table.md").read_text(encoding="utf-8") == "l?uf ±"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
@pytest.mark.parametrize(("umask", "expected"), [(0o077, 0o600), (0o022, 0o644), (0o002, 0o664)])
def test_the_umask_says_who_may_read_a_file(tmp_path: Path, umask: int, expected: int) -> None:
    """A page with private pictures stays with its owner; a group that shares a folder may change what lies there."""
    before = os.umask(umask)
    try:
        write_atomic(tmp_path / "page.html", "x")
        save_atomic(tmp_path / "model.safetensors", lambda temporary: save_file({"a": np.zeros(2)}, temporary))
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in sorted(tmp_path.iterdir())] == [expected, expected]


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now
