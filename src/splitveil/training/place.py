"""The place of a run: whether a run may begin in a folder, and what a killed process left there."""

from __future__ import annotations

import json
import logging
from typing import Any

from splitveil.core.config import Config
from splitveil.core.dotted import flatten
from splitveil.core.errors import ConfigError, UsageError
from splitveil.core.files import is_leftover
from splitveil.core.listed import listed
from splitveil.core.locks import LOCK
from splitveil.core.places import check_folder
from splitveil.core.run_folder import RunFolder

log = logging.getLogger("splitveil.training")

NAMED = 3  # differences that a refusal names


def check_start(folder: RunFolder, config: Config, resume: bool) -> None:
    """Refuse a folder in which this run cannot begin or, with `resume`, go on; nothing is written."""
    check_folder(folder.path)
    existing = (folder.path / "config.toml").exists()
    if existing and folder.is_training():
        raise UsageError(
            f"Another process is writing to {folder.path}.", "Wait for it, or choose another folder with --out."
        )
    if existing and not resume:
        raise UsageError(
            f"{folder.path} already holds a run.", "Continue it with --resume, or choose another folder with --out."
        )
    if existing and (before := folder.config()) != config:
        differences = _differences(before, config)
        raise ConfigError(
            f"The recipe differs from the one {folder.path} was started with: {listed(differences, NAMED)}.",
            "Go on with the same recipe and --set, or choose another folder with --out.",
        )
    if resume and not existing:
        log.warning("nothing to resume in %s, starting from the beginning", folder.path)
    elif existing and not any(folder.checkpoints.glob("*")) and not (folder.path / "result.json").exists():
        log.info("%s has no checkpoint yet, starting from the beginning", folder.path)
    # a run that was killed while it wrote its first file has left a lock and a temporary file
    inside = list(folder.path.iterdir()) if folder.path.is_dir() else []
    foreign = any(path.name != LOCK and not is_leftover(path) for path in inside)
    if foreign and not existing:
        raise UsageError(f"{folder.path} is not empty and not a run folder.", "Choose another folder with --out.")


def _differences(before: Config, now: Config) -> list[str]:
    """The keys in which two configurations differ, each with its value in both."""
    old, new = flatten(before.model_dump(mode="json")), flatten(now.model_dump(mode="json"))
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return [f"{key} was {_shown(old.get(key))} and is {_shown(new.get(key))}" for key in keys]


def _shown(value: Any) -> str:
    return "absent" if value is None else json.dumps(value)


def clear_leftovers(folder: RunFolder) -> None:
    """Delete temporary files of a process that was killed; a checkpoint among them may be large."""
    for place in (folder.path, folder.checkpoints, folder.path / "gates"):
        for path in [path for path in place.glob(".*.part") if is_leftover(path)]:
            path.unlink(missing_ok=True)
