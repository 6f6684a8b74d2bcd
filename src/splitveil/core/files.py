"""Files that are either complete or absent."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from splitveil.core.errors import UsageError

try:
    import fcntl
except ImportError:  # Windows has no such lock; there two writers are not noticed
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"  # in a folder that has one writer at a time
LOCK_TRIES = 20  # within a second


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write a whole file, or none: the content appears under its name only when it is on disk."""
    data = content.encode() if isinstance(content, str) else content
    save_atomic(path, lambda temporary: temporary.write_bytes(data))


def save_atomic(path: Path, save: Callable[[Path], object], *, mode: int = 0o644) -> None:
    """Let `save` write a temporary file beside `path`, then rename it into place; `mode` says who may read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # its name is known before it exists: Ctrl-C at any moment leaves nothing behind
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    with _named(path):
        try:
            temporary.touch(mode=0o600, exist_ok=False)
            save(temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.chmod(mode)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def is_leftover(path: Path) -> bool:
    """Whether this is a writer's temporary file; where nobody writes, a process that was killed has left it."""
    return path.name.startswith(".") and path.name.endswith(".part")


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """An error of writing names the file that was asked for, not the temporary one beside it."""
    try:
        yield
    except OSError as error:
        temporary = error.filename is None or str(error.filename).endswith(".part")
        if error.errno is not None and temporary:
            error.filename, error.filename2 = str(path), None
        raise


def check_place(path: Path, *, folder: bool = False) -> None:
    """Refuse a place that cannot be written, before the work that would be lost: call it first.

    The folder above `path` must exist: a slip in a path should not make new folders.
    """
    if not path.parent.is_dir():
        raise UsageError(
            f"There is no folder {path.parent} to write {path.name} into.", "Make it first, or correct the path."
        )
    if folder and path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file, not a folder.", "Choose another name.")
    if not folder and path.is_dir():
        raise UsageError(f"{path} is a folder, not a file.", "Give the name of a file in it.")
    check_writable(path if path.is_dir() else path.parent, "Change its permissions, or choose another place.")


def check_folder(path: Path) -> None:
    """Refuse a place for a new folder that is a file, or lies below one."""
    for place in (path, *path.parents):
        if place.exists() and not place.is_dir():
            raise UsageError(
                f"{place} is a file, not a folder.",
                "Give --out (in Python: out) the name of a folder, a new one for a new run.",
            )


def looks_like_path(name: str, *endings: str) -> bool:
    """Whether a word that is neither a known name nor a file was probably meant as a path."""
    return name.startswith((".", "~")) or "/" in name or os.sep in name or name.endswith(endings)


OWN_COPY = "Change its permissions, or work on a copy in a folder of your own."


def check_writable(folder: Path, hint: str = OWN_COPY) -> None:
    """Make `folder` and refuse it where nothing can be written there, before the work that would be lost."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"{folder} cannot be written ({error.strerror or error}).", hint) from None


def check_will_write(folder: Path, hint: str = OWN_COPY) -> None:
    """`check_writable` for a folder that is made later, with all above it: looks at the nearest that is there."""
    check_writable(next(place for place in (folder, *folder.absolute().parents) if place.exists()), hint)


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically; NaN is refused because other readers would choke on it."""
    write_atomic(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def append_line(path: Path, line: str) -> None:
    """Append one line with a single write, so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode() + b"\n")
    finally:
        os.close(handle)


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


def _remove_empty(folder: Path, made: list[Path]) -> None:
    with suppress(OSError):  # the first that holds something stays, and all around it
        if [path.name for path in folder.iterdir()] == [LOCK]:
            (folder / LOCK).unlink()
        for place in made:
            place.rmdir()


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


def sha256(path: Path) -> str:
    """Checksum of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
