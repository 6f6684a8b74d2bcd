"""Many names in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

MOST = 6


def listed(names: Sequence[str], most: int = MOST, between: str = "; ") -> str:
    """The names, or the first of them and how many there are beside these.

    >>> listed(["a", "b", "c"], 3), listed(["a", "b", "c"], 1, ", ")
    ('a; b; c', 'a, and 2 more')
    """
    more = len(names) - most
    return between.join([*names[:most], *([f"and {more:,} more"] if more > 0 else [])])
