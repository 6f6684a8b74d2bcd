"""Commands that a message tells somebody to give."""

from __future__ import annotations

import shlex
from pathlib import Path


def command(*words: object) -> str:
    """`splitveil` with these words, quoted so that a shell takes it as it stands.

    >>> command("audit", "runs/my first")
    "splitveil audit 'runs/my first'"
    """
    return shlex.join(["splitveil", *map(str, words)])


def shown_path(path: Path) -> str:
    """Relative to here, or the bare name: what is passed on names no home directory."""
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):
        return path.resolve().name
