"""Where data sets lie, and paths that a user gives: refuse one that cannot be written before the work is done."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from splitveil.core.errors import UsageError

OWN_COPY = "Change its permissions, or work on a copy in a folder of your own."


def data_root() -> Path:
    """Where data sets are stored: `SPLITVEIL_DATA` where it is set, else a folder in the user's cache."""
    given = os.environ.get("SPLITVEIL_DATA")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "splitveil" / "data"


def check_place(path: Path, *, folder: bool = False) -> None:
    """Refuse a place that cannot be written, before the work that would be lost: call it first.

    The folder above `path` must exist: a slip in a path should not make new folders.
    """
    if not path.parent.is_dir():
        raise UsageError(
            f"There is no folder {path.parent} to write {path.name} into.", "Make it first, or correct the path."
        )
    if folder and path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file, not a folder.", "Choose another name.")
    if not folder and path.is_dir():
        raise UsageError(f"{path} is a folder, not a file.", "Give the name of a file in it.")
    check_writable(path if path.is_dir() else path.parent, "Change its permissions, or choose another place.")


def check_name(path: Path) -> None:
    """Refuse a path that is not UTF-8: weights can be written there, and never be read again."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"The path {path} is not valid UTF-8, and weights cannot be read from there.",
            "Rename the folder, or choose another.",
        ) from None


def check_folder(path: Path) -> None:
    """Refuse a place for a new folder that is a file, lies below one, or has a name that is no text."""
    check_name(path)
    for place in (path, *path.parents):
        if place.exists() and not place.is_dir():
            raise UsageError(
                f"{place} is a file, not a folder.",
                "Give --out (in Python: out) the name of a folder, a new one for a new run.",
            )


def check_writable(folder: Path, hint: str = OWN_COPY) -> None:
    """Make `folder` and refuse it where nothing can be written there, before the work that would be lost."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"{folder} cannot be written ({error.strerror or error}).", hint) from None


def check_will_write(folder: Path, hint: str = OWN_COPY) -> None:
    """`check_writable` for a folder that is made later, with all above it: looks at the nearest that is there."""
    check_writable(next(place for place in (folder, *folder.absolute().parents) if place.exists()), hint)


def looks_like_path(name: str, *endings: str) -> bool:
    """Whether a word that is neither a known name nor a file was probably meant as a path."""
    return name.startswith((".", "~")) or "/" in name or os.sep in name or name.endswith(endings)
