"""The place where fetched data sets live: one safetensors file for each, complete or absent, never a pickle."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from splitveil.core.errors import DataError, InputError
from splitveil.core.files import save_atomic
from splitveil.data.augment import Augmentation
from splitveil.data.dataset import Dataset, DatasetInfo, ImageSet

FORMAT = "1"
PARTS = ("train", "test", "aux")
PRIVATE = ".splitveil-"
DAY = 24 * 3600  # seconds; no fetch takes that long


@contextmanager
def private_folder(root: Path) -> Iterator[Path]:
    """A folder below `root` for work in progress, removed in the end.

    A killed process cannot remove its folder; what such processes left more than a day ago is removed here.
    """
    root.mkdir(parents=True, exist_ok=True)
    for folder in root.glob(f"{PRIVATE}*"):
        with suppress(OSError):  # somebody else may have removed it a moment ago
            if time.time() - folder.stat().st_mtime > DAY:
                shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=PRIVATE, dir=root) as name:
        yield Path(name)


def stored_path(root: Path, name: str) -> Path:
    """Where the registered data set `name` is stored."""
    return root / f"{name}.safetensors"


def write(path: Path, dataset: Dataset, **notes: str) -> None:
    """Store a data set with its checksums and some notes; an interruption leaves no file."""
    tensors, digests = {}, {}
    for part in PARTS:
        pictures: ImageSet | None = getattr(dataset, part)
        if pictures is not None:
            tensors[f"{part}_images"], tensors[f"{part}_labels"] = pictures.images, pictures.labels
            digests[part] = pictures.digest()
    metadata = {
        "format": FORMAT,
        "info": json.dumps(asdict(dataset.info)),
        "sha256": json.dumps(digests),
        "notes": json.dumps(notes),
    }
    with private_folder(path.parent) as folder:
        save_atomic(folder / path.name, lambda temporary: save_file(tensors, temporary, metadata=metadata))
        (folder / path.name).replace(path)


def read(path: Path) -> tuple[Dataset, dict[str, str]]:
    """A stored data set and its notes, after its content has been compared with its checksums."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise DataError(
                    f"{path} was not written by this version of splitveil.", "Delete it, then fetch it again."
                )
            digests: dict[str, str] = json.loads(metadata["sha256"])
            sets = {
                part: ImageSet(file.get_tensor(f"{part}_images"), file.get_tensor(f"{part}_labels")) for part in digests
            }
            info = _info(json.loads(metadata["info"]))
            notes: dict[str, str] = json.loads(metadata["notes"])
            dataset = Dataset(info, sets["train"], sets["test"], sets.get("aux"))
    except (SafetensorError, KeyError, TypeError, ValueError, InputError) as error:
        raise DataError(f"{path} is damaged: {error}.", "Delete it, then fetch it again.") from None
    for part, pictures in sets.items():
        if pictures.digest() != digests[part]:
            raise DataError(
                f"{path} is damaged: the sha256 of its {part} part should be {digests[part][:12]}..., "
                f"but is {pictures.digest()[:12]}...",
                "Delete it, then fetch it again.",
            )
    return dataset, notes


def stated_content(path: Path) -> str | None:
    """The checksums that a stored data set states of its parts, without reading them; None where none is stored."""
    try:
        with safe_open(path, framework="pt") as file:
            return (file.metadata() or {}).get("sha256")
    except (OSError, SafetensorError):
        return None


def _info(fields: dict[str, Any]) -> DatasetInfo:
    """JSON has lists where `DatasetInfo` has tuples."""
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
    return DatasetInfo(**fields | {"augmentation": Augmentation(**fields["augmentation"])})
