"""Read and write the small part of TOML that recipes use (Python reads TOML but does not write it)."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from splitveil.core.errors import ConfigError


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a file; a syntax error names file and line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # some editors begin a file with a mark
    except FileNotFoundError:
        raise ConfigError(f"There is no file {path}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None


def parse_value(text: str) -> Any:
    """A value as typed on the command line: TOML where it parses, otherwise the plain text.

    >>> parse_value("0.5"), parse_value("true"), parse_value("gmm"), parse_value("[1, 2]")
    (0.5, True, 'gmm', [1, 2])
    """
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def dump_toml(tree: Mapping[str, Any]) -> str:
    """Write a tree of tables; keys whose value is None are left out."""
    lines: list[str] = []
    _dump_table(tree, (), lines)
    return "\n".join(lines).strip() + "\n"


def _dump_table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    if path and (not table or any(not isinstance(value, Mapping) for value in table.values())):
        lines += ["", f"[{'.'.join(_key(part) for part in path)}]"]
    for key, value in table.items():
        if value is not None and not isinstance(value, Mapping):
            lines.append(f"{_key(key)} = {dump_value(value)}")
    for key, value in table.items():
        if isinstance(value, Mapping):
            _dump_table(value, (*path, key), lines)


def _key(key: str) -> str:
    plain = key.replace("-", "").replace("_", "")
    return key if plain.isascii() and plain.isalnum() else dump_value(key)


def dump_value(value: Any) -> str:
    """One value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(dump_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        filled = {key: item for key, item in value.items() if item is not None}
        return "{" + ", ".join(f"{_key(key)} = {dump_value(item)}" for key, item in filled.items()) + "}"
    raise ConfigError(f"A {type(value).__name__} cannot be written to TOML.")
