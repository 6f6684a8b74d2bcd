"""Nested tables under dotted keys: `section.key`, as recipes, `--set` and grids name a setting, and files a tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from splitveil.core.errors import ConfigError

Value = TypeVar("Value")


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested table as `section.key` -> value; an empty table stays as such, so that its presence is not lost.

    >>> flatten({"defence": {"sca": {}, "noise": {"sigma": 0.1}}})
    {'defence.sca': {}, 'defence.noise.sigma': 0.1}
    """
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        flat |= flatten(value, name) if isinstance(value, dict) and value else {name: value}
    return flat


def below(prefix: str, flat: Mapping[str, Value]) -> dict[str, Value]:
    """What stands under names that begin with `prefix`, under the rest of those names.

    >>> below("model.", {"model.edge.weight": 1, "surrogate.slots": 2})
    {'edge.weight': 1}
    """
    return {name.removeprefix(prefix): value for name, value in flat.items() if name.startswith(prefix)}


def put(tree: dict[str, Any], path: Sequence[str], value: Any, where: str) -> None:
    """Set the value at `path`, making the tables on the way; `where` names its origin in an error.

    >>> tree = {"train": {"epochs": 5}}
    >>> put(tree, ["train", "lr"], 0.1, "the example")
    >>> tree
    {'train': {'epochs': 5, 'lr': 0.1}}
    """
    table = tree
    for key in path[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise ConfigError(f"'{key}' in {where} is a value, not a table.")
    table[path[-1]] = value
