"""Commands that a message tells somebody to give."""

from __future__ import annotations

import shlex


def command(*words: object) -> str:
    """`splitveil` with these words, quoted so that a shell takes it as it stands.

    >>> command("audit", "runs/my first")
    "splitveil audit 'runs/my first'"
    """
    return shlex.join(["splitveil", *map(str, words)])
