"""Data sets: uint8 pictures on the training device, with augmentation there and fixed parts for defender and attacker.

>>> from splitveil import data
>>> "fashion-mini" in data.names()
True
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from splitveil.core.catalogue import DATASETS
from splitveil.core.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from splitveil.core.sections import Data
    from splitveil.data.dataset import DataParts, Dataset
    from splitveil.data.source import Source

log = logging.getLogger("splitveil.data")
TWINS = (
    "%d of the %d test pictures are training pictures too: the accuracy on them says little, and an audit refuses "
    "those that the attacker has, unless they are few."
)

__all__ = ["create", "describe", "load", "names"]


def names() -> list[str]:
    """All registered data sets."""
    return DATASETS.names()


def describe(name: str) -> str:
    """What a data set holds, in one sentence."""
    return DATASETS.describe(name)


def create(name_or_path: str | Path, *, root: Path | None = None, image_size: int | None = None) -> Dataset:
    """A data set by registered name, or from the path of an `.npz` file or of an image folder.

    `root` is where fetched data sets are stored (default: `SPLITVEIL_DATA`, else the user's cache folder).
    `image_size` is the side to which the pictures of an image folder are brought.
    """
    from splitveil.core.config import names_a_path
    from splitveil.core.places import data_root

    root = data_root() if root is None else root
    path = Path(name_or_path)
    if not names_a_path(str(name_or_path)):
        source: Source = DATASETS.load(str(name_or_path))
        dataset = source.open(root)
    elif path.is_dir():
        from splitveil.data.folder import open_folder

        return open_folder(path, root, image_size)
    else:
        from splitveil.data.npz import open_npz

        dataset = open_npz(path)
    if image_size is not None and dataset.info.image_shape[1:] != (image_size, image_size):
        height, width = dataset.info.image_shape[1:]
        raise ConfigError(
            f"data.image_size = {image_size}, but the pictures of {dataset.info.name} are {height} x {width}.",
            "Leave it out: only image folders are resized.",
        )
    return dataset


def check(name: str) -> None:
    """Raise what `create` would where a registered data set is not stored; reads no pictures."""
    from splitveil.core.places import data_root

    if name in DATASETS.names():
        source: Source = DATASETS.load(name)
        source.check(data_root())


def load(config: Data | str | Path, seed: int, device: str | torch.device = "cpu") -> DataParts:
    """The parts of a run (DESIGN 5) as `config` asks for them, fixed by `seed`, on `device`.

    A name or a path stands for a configuration that says nothing else.
    """
    from splitveil.core.sections import Data
    from splitveil.data.protocol import split

    if isinstance(config, str | Path):
        config = Data(name=str(config))
    dataset = create(config.name, image_size=config.image_size)
    if config.name not in DATASETS.names() and (twins := dataset.twins()):  # those of public sets are known
        log.warning(TWINS, twins, len(dataset.test))
    return split(dataset, config.protocol, seed, config.limit).to(device)
