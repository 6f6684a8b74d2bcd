"""Files of a cell that cannot be read: a broken copy, a failing disk, a careless edit.

Every file is written whole or not at all, so a sweep that was killed leaves none of these. Where one is found all the
same, what it held is made again: a damaged audit from the weights, anything else by running the cell from the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from splitveil.core.errors import SplitveilError
from splitveil.core.run_folder import RunFolder
from splitveil.experiments.loose import number
from splitveil.experiments.sweep.cells import Cell, address
from splitveil.experiments.sweep.folder import audit_file, read_cell, read_json


def damaged_files(run: RunFolder, cell: Cell) -> list[str]:
    """Files of a cell's folder that are there and not what they should be; audits are not among them."""
    broken = [] if not (run.path / "cell.json").exists() or read_cell(run) else ["cell.json"]
    if (run.path / "config.toml").exists() and not _is_config_of(run, cell):
        broken.append("config.toml")
    if (run.path / "manifest.json").exists() and read_json(run.path / "manifest.json") is None:
        broken.append("manifest.json")
    if (run.path / "result.json").exists():
        result = read_json(run.path / "result.json") or {}
        if number(result.get("accuracy_late")) is None:
            broken.append("result.json")
        elif len(run.metrics()) != result.get("epochs"):
            broken.append("metrics.jsonl")
    return broken


def damaged_audits(run: RunFolder, modes: Sequence[str]) -> list[Path]:
    """Every audit.json that is there and cannot be used."""
    files = [audit_file(run, mode, modes) for mode in modes]
    return [file for file in files if file.exists() and not _is_audit(read_json(file))]


def weights_are_readable(run: RunFolder) -> bool:
    """Whether the final weights are there, whole."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(run.checkpoints / "model.safetensors", framework="np"):  # refuses a file that is cut short
            return True
    except (OSError, SafetensorError):
        return False


def _is_config_of(run: RunFolder, cell: Cell) -> bool:
    try:
        return address(run.config()) == cell.id
    except (SplitveilError, OSError, UnicodeDecodeError):
        return False


def _is_audit(tree: dict[str, Any] | None) -> bool:
    return tree is not None and isinstance(tree.get("attacks"), dict) and number(tree.get("seconds")) is not None
