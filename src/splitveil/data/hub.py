"""Read a data set from the Hugging Face hub (extra `hub`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from splitveil.core.errors import DataError, MissingExtraError
from splitveil.data.assembly import Part
from splitveil.data.source import Content, Progress


@dataclass(frozen=True)
class HubRepository:
    """Where a data set lies on the hub, and what its columns and its test split are called."""

    repository: str
    image: str
    label: str
    test: str = "test"


def read_hub(hub: HubRepository, progress: Progress) -> Content:
    """Load both splits and decode their pictures."""
    try:
        import datasets
    except ImportError:
        raise MissingExtraError("datasets", "hub") from None
    parts = {}
    for part, split in (("train", "train"), ("test", hub.test)):
        try:
            rows = datasets.load_dataset(hub.repository, split=split)
            parts[part] = _decode(rows, hub, f"Decoding {split} pictures", progress)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise DataError(
                f"{hub.repository} could not be read from the hub: {error}.", "Check the network and the name."
            ) from None
    return Content(parts)


def _decode(rows: Any, hub: HubRepository, label: str, progress: Progress) -> Part:
    images, labels = [], []
    for number, row in enumerate(rows):
        values = np.asarray(row[hub.image])
        images.append(values[None] if values.ndim == 2 else np.moveaxis(values, -1, 0))
        labels.append(row[hub.label])
        if number % 1000 == 999:
            progress(label, number + 1, len(rows))
    return np.stack(images), np.array(labels)
