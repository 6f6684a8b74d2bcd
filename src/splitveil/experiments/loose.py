"""Read files of unknown origin: whatever does not fit becomes None, nothing raises.

A report is often made from runs that are half finished, edited by hand or written by another version. The functions
here answer "is there a usable value at this place?" so that the rest of the layer never has to guard itself.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from splitveil.core.errors import reason

MAX_BYTES = 64 * 2**20  # a file of results larger than this is not one of ours; reading it would only eat memory


def number(value: Any) -> float | None:
    """A finite float, or None for everything else (booleans and numeric strings included).

    >>> number(3), number("3"), number(float("nan")), number(True)
    (3.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        result = float(value)
    except OverflowError:  # JSON integers have no upper limit
        return None
    # Beyond this it is no measurement, and differences of two such numbers would overflow in a chart.
    return result if abs(result) < 1e60 else None


def text(value: Any) -> str | None:
    """A non-empty string, or a number written as one."""
    if isinstance(value, str):
        return value.strip() or None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return f"{value:g}" if number(value) is not None else None


def table(value: Any) -> dict[str, Any]:
    """A mapping with string keys; empty for everything else."""
    return {str(key): item for key, item in value.items()} if isinstance(value, Mapping) else {}


def items(value: Any) -> list[Any]:
    """A list; a single string counts as a list of one, everything else is empty."""
    if isinstance(value, str):
        return [value]
    return list(value) if isinstance(value, list | tuple) else []


def interval(value: Any) -> tuple[float, float] | None:
    """Two finite numbers in order."""
    ends = [number(item) for item in items(value)]
    if len(ends) != 2 or ends[0] is None or ends[1] is None or ends[0] > ends[1]:
        return None
    return ends[0], ends[1]


def shut(folder: Path) -> str | None:
    """Why one may not look into a folder, in a word or two; None where one may, or where there is none."""
    try:
        (folder / "any").stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return error.strerror or "it cannot be read"
    return None


def read_table(path: Path) -> tuple[dict[str, Any], str | None]:
    """The table in a .json or .toml file, and what is wrong with it: None, "missing" or a short reason."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return {}, f"larger than {MAX_BYTES // 2**20} MB"
        if path.suffix == ".toml":
            value: Any = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # as `core.toml.read_toml`
        else:
            value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}, "missing"
    except OSError as error:
        return {}, error.strerror or "cannot be read"
    except (ValueError, RecursionError) as error:  # syntax, encoding, or nesting without end
        return {}, reason(error, type(error).__name__)[:160]
    if not isinstance(value, dict):
        return {}, "not a table"
    return table(value), None


def read_rows(path: Path) -> tuple[list[dict[str, Any]], int, str | None]:
    """The rows of a .jsonl file, the number of lines that are not rows, and what is wrong with the file as a whole."""
    rows: list[dict[str, Any]] = []
    bad = 0
    try:
        if path.stat().st_size > MAX_BYTES:
            return [], 0, f"larger than {MAX_BYTES // 2**20} MB"
        content = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return [], 0, "missing"
    except OSError as error:
        return [], 0, error.strerror or "cannot be read"
    for line in content.split("\n"):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            rows.append(row)
        else:
            bad += 1
    return rows, bad, None
