"""Which folder, or file, was probably meant by a path that does not exist."""

from __future__ import annotations

import difflib
import os
from pathlib import Path


def nearest_folder(path: str | Path, *, files: bool = False) -> Path | None:
    """The existing folder whose path differs from `path` in few letters of its names; None where none is near.

    With `files` it may be a file, too.
    """
    wanted = Path(path)
    return _below(Path(wanted.anchor), list(wanted.parts[1:] if wanted.anchor else wanted.parts), files)


def folder_hint(path: str | Path, otherwise: str, *, files: bool = False) -> str:
    """A hint for a path that does not exist: the folder that is near, or what to do where there is none."""
    near = nearest_folder(path, files=files)
    return otherwise if near is None else f"Did you mean {near}?"


def _below(start: Path, names: list[str], files: bool) -> Path | None:
    if not names:
        return start
    for name in _alike(start, names[0], files and len(names) == 1):
        found = _below(start / name, names[1:], files)
        if found is not None:
            return found
    return None


def _alike(parent: Path, name: str, files: bool) -> list[str]:
    """The folder (or file) of this name first, then those whose names are much like it."""
    try:
        folders = sorted(one.name for one in os.scandir(parent) if files or one.is_dir())
    except OSError:  # a hint is not worth an error of its own
        return []
    if name == "..":
        return [name]
    close = difflib.get_close_matches(name, folders, n=3, cutoff=0.6)
    return [name] * (name in folders) + [one for one in close if one != name]
