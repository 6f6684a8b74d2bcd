"""One process at a time writes into a folder, or changes a file."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from splitveil.core.errors import UsageError
from splitveil.core.locks import held, only_writer


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
