"""Files that are either complete or absent."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write a whole file, or none: the content appears under its name only when it is on disk. Text is UTF-8; what is
    none in it, from the name of a file, becomes a question mark."""
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    save_atomic(path, lambda temporary: temporary.write_bytes(data))


def save_atomic(path: Path, save: Callable[[Path], object], *, mode: int = 0o666) -> None:
    """Let `save` write a temporary file beside `path`, then rename it into place; `mode` less the umask says who may
    read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # its name is known before it exists: Ctrl-C at any moment leaves nothing behind
    temporary = leftover(path)
    with _named(path):
        try:
            temporary.touch(mode=mode, exist_ok=False)
            permitted = stat.S_IMODE(temporary.stat().st_mode)
            save(temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.chmod(permitted)  # safetensors puts a file of its own in the place of ours
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def leftover(path: Path) -> Path:
    """A name beside `path` for what is not complete yet."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")


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


def sha256(path: Path) -> str:
    """Checksum of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
