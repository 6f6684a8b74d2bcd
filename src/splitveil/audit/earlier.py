"""A finished audit with other settings is set aside, not overwritten: a weak audit must not erase a strong one."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

log = logging.getLogger("splitveil.audit")

EARLIER = "earlier"
MOVING = ".earlier"  # what is on its way there: an interruption then loses nothing
STAYING = {EARLIER, "partial", "audit.json"}  # `partial` belongs to an unfinished audit


def set_aside(folder: Path, tree: dict[str, Any]) -> bool:
    """Move the finished audit in `folder` to `folder/earlier/NUMBER` where its settings are not those of `tree`.

    Numbers rise from 1; nothing that was set aside before is touched. Returns whether something was moved.
    """
    moving = folder / MOVING
    found = _finished(folder)
    if found is not None and _settings(found) != _settings(tree):
        moving.mkdir(exist_ok=True)
        names = sorted(path.name for path in folder.iterdir() if path.name not in STAYING and path.name[0] != ".")
        for name in [*names, "audit.json"]:  # audit.json last: with it the move is complete
            (folder / name).rename(moving / name)
    if _finished(moving) is None:
        return False
    kept = _next(folder / EARLIER)
    moving.rename(kept)
    log.warning("%s held an audit with other settings, which is now in %s.", folder, kept)
    return True


def _next(folder: Path) -> Path:
    """The place after the highest number, so that the order of the numbers is that of the audits."""
    folder.mkdir(exist_ok=True)
    taken = [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]
    return folder / str(max(taken, default=0) + 1)


def _finished(folder: Path) -> dict[str, Any] | None:
    try:
        tree = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # none, or none that can be read
        return None
    return tree if isinstance(tree, dict) else None


def _settings(tree: dict[str, Any]) -> tuple[Any, ...]:
    """What was asked for: the signature pins attacks, pictures and model, but not the check of the suite itself."""
    extra = tree.get("extra")
    return tree.get("signature"), tree.get("sanity") is None, sorted(extra) if isinstance(extra, dict) else []
