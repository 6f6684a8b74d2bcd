"""Find run folders below the paths a user names."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from splitveil.core.errors import UsageError
from splitveil.core.listed import listed
from splitveil.core.nearest_folder import folder_hint
from splitveil.core.shell import command
from splitveil.experiments.loose import shut

log = logging.getLogger("splitveil.discover")

# Any one of these makes a folder a run folder: a damaged or half-finished run must still be shown.
SIGNS = ("config.toml", "manifest.json", "metrics.jsonl", "result.json", "audit/audit.json")
SWEEP = "sweep.json"  # a folder with this file is a sweep; its runs are in cells/
DEPTH = 4  # sweep/method/strength/seed
SKIPPED = {"audit", "checkpoints", "explain", "gates"}
ARTEFACT = ("edge.onnx", "cloud.onnx")  # either makes a folder an exported artefact, which has a config.toml, too


def is_sweep(folder: Path) -> bool:
    return (folder / SWEEP).is_file()


def is_run(folder: Path) -> bool:
    if is_sweep(folder) or _is_artefact(folder):
        return False
    if shut(folder / "audit") is not None:  # whatever is in it must not pass for no audit
        return True
    return any((folder / sign).is_file() for sign in SIGNS)


def find_runs(paths: list[Path], told: set[Path] | None = None) -> list[Path]:
    """Run folders in the order given, each once; a folder that is not a run is searched for runs below it.

    Folders that may not be read are named in the log, unless they were `told` before; that set is kept up to date.
    """
    found: dict[Path, Path] = {}
    hidden: set[Path] = set()
    for path in paths:
        if not path.exists():
            hint = folder_hint(path, "Give a run folder, or a folder that contains some.")
            raise UsageError(f"There is no folder {path}.", hint)
        if not path.is_dir():
            raise UsageError(f"{path} is a file, not a run folder.", f"Try its folder: {path.parent}")
        if (path / "audit.json").is_file() and not is_run(path):
            above = path.resolve().name == "audit"
            hint = f"Give the folder above it: {path / '..'}" if above else "Move it to NAME/audit and give NAME."
            raise UsageError(f"{path} is an audit, not a run folder.", hint)
        for folder in [path] if is_run(path) else _below(path, DEPTH, hidden):
            found.setdefault(folder.resolve(), folder)
    told = set() if told is None else told
    if new := sorted(hidden - told):
        log.warning(
            "warning: %d %s may not be read; runs in there are left out: %s",
            len(new),
            "folder" if len(new) == 1 else "folders",
            listed(list(map(str, new)), between=", "),
        )
        told |= hidden
    if not found and (exported := [path for path in paths if _is_artefact(path)]):
        raise UsageError(
            f"{exported[0]} is an exported artefact, not a run.",
            f"Attack it, and give the folder that this names: {command('audit', exported[0])}",
        )
    if not found:
        raise UsageError(
            f"There is no run folder in {', '.join(map(str, paths)) or 'an empty list'}.",
            "Make one with: splitveil train RECIPE --out DIR",
        )
    return list(found.values())


def _is_artefact(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ARTEFACT)


def _below(folder: Path, depth: int, hidden: set[Path]) -> list[Path]:
    """Runs below a folder; what may not be looked into joins `hidden`."""
    if depth == 0:
        return []
    runs = []
    try:
        children = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=depth == DEPTH))
    except FileNotFoundError:  # deleted a moment ago
        return []
    except OSError:
        hidden.add(folder)
        return []
    for name in children:
        if name.startswith(".") or name in SKIPPED:
            continue
        child = folder / name
        if shut(child) is not None:
            hidden.add(child)
        else:
            runs += [child] if is_run(child) else _below(child, depth - 1, hidden)
    return runs
