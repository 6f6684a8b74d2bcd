"""Folders and files that one process holds at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from splitveil.core.errors import UsageError
from splitveil.core.places import check_writable

try:
    import fcntl
except ImportError:  # Windows has no such lock; there two writers are not noticed
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"  # in a folder that has one writer at a time
LOCK_TRIES = 20  # within a second


@contextmanager
def only_writer(
    folder: Path,
    who: str = "process",
    hint: str = "Wait for it, or choose another folder with --out.",
    *,
    tidy: bool = False,
) -> Iterator[None]:
    """Hold a folder for one process; a second one gets an error instead of writing into the same files.

    The operating system gives the lock back when the process ends, however it ends. The error calls the other one
    `who` and ends with `hint`. With `tidy`, work that ends in an error before its first file leaves neither the lock
    nor the folders behind that were made for it.
    """
    made = [place for place in (folder, *folder.parents) if not place.exists()]  # the innermost first
    check_writable(folder)
    with (folder / LOCK).open("w") as handle:
        if fcntl is not None:
            _lock(handle, UsageError(f"Another {who} is writing to {folder}.", hint))
        try:
            yield
        except BaseException:
            if tidy:
                _remove_empty(folder, made)
            raise


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a file, which need not exist, for one process that reads, changes and writes it; others wait their turn."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}{LOCK}").open("w") as handle:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX)  # given back when the handle is closed
        yield


def has_writer(folder: Path) -> bool:
    """Whether a process holds a folder as `only_writer`; where that cannot be known (Windows), True.

    Only asked where a run says that it is running: then its process has the lock already. One that resumes a dead run
    at this very moment finds the lock taken for an instant, and tries again.
    """
    if fcntl is None:
        return True
    try:
        with (folder / LOCK).open("r") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
    except OSError:
        return False
    return False


def _lock(handle: IO[str], taken: UsageError) -> None:
    """Take the lock; one who only looks whether a run is alive (has_writer) holds it for an instant: try again."""
    for patience in range(LOCK_TRIES, 0, -1):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            if patience > 1:
                time.sleep(1 / LOCK_TRIES)
    raise taken


def _remove_empty(folder: Path, made: list[Path]) -> None:
    with suppress(OSError):  # the first that holds something stays, and all around it
        if [path.name for path in folder.iterdir()] == [LOCK]:
            (folder / LOCK).unlink()
        for place in made:
            place.rmdir()
