"""Values of another kind at any place of a JSON tree: what a foreign or edited file may hold."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

Path = tuple[Any, ...]

ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    1e59,
    -1e-300,
    "",
    "text",
    "0.5",
    "<b>",
    [],
    [[]],
    [1],
    {},
    {"a": {"b": [None]}},
    float("inf"),
    10**400,
]


def places(tree: Any, path: Path = ()) -> Iterator[Path]:
    """Every key and position of a tree, as the way to it."""
    if isinstance(tree, dict | list):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield (*path, key)
            yield from places(value, (*path, key))


def spoil(tree: Any, chosen: Iterable[Path], chance: random.Random) -> None:
    """Put an odd value at each of the chosen places."""
    for place in chosen:
        target = tree
        try:
            for key in place[:-1]:
                target = target[key]
            target[place[-1]] = chance.choice(ODD)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change has removed this place
