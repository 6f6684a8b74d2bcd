"""What a cell reads from places that its settings only name: files change while their name or path stays the same."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from splitveil.core.catalogue import DATASETS
from splitveil.core.config import Config
from splitveil.core.errors import SplitveilError
from splitveil.core.files import sha256
from splitveil.core.places import data_root
from splitveil.core.run_folder import starting_run
from splitveil.data.folder import picture_files
from splitveil.data.store import stated_content, stored_path


def pictures_of(config: Config) -> dict[str, str]:
    """A short checksum of the file, or of the pictures in the folder, that `data.name` gives the path of, or of what is
    stored under its name (`faces` are anybody's); empty for pictures that come along, and for what is not here (the
    machines of a Ray cluster may have it) or no data set: reading it says so."""
    name = config.data.name
    if name in DATASETS.names():
        content = stated_content(stored_path(data_root(), name))
        return {} if content is None else {"pictures": hashlib.sha256(content.encode()).hexdigest()[:8]}
    try:
        return {"pictures": _checksum(Path(name).resolve(strict=True))}
    except (OSError, SplitveilError):
        return {}


def start_of(config: Config) -> dict[str, str]:
    """A short checksum of the weights of the run that `train.init_from` names; empty where it names none, or one that
    is not here or cannot be read: only a cell that has not begun needs it."""
    try:
        run = starting_run(config)
        return {} if run is None else {"start": _checksum(run.weights())}
    except (OSError, SplitveilError):
        return {}


def look_again() -> None:
    """Forget what was read: a sweep reads every file once, and the next one again."""
    _checksum.cache_clear()


@cache
def _checksum(path: Path) -> str:
    digest = hashlib.sha256()
    for file in picture_files(path) if path.is_dir() else [path]:
        digest.update(f"{file.relative_to(path).as_posix()}\0{sha256(file)}\0".encode())
    return digest.hexdigest()[:8]
