"""Split networks: an edge half, a cloud half, a cut between them. One file each, listed in `core/catalogue.py`.

>>> from splitveil import models
>>> model = models.create("tiny", image_shape=(1, 28, 28), num_classes=10)
>>> model.feature_shape
(32, 7, 7)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splitveil.core.catalogue import MODELS
from splitveil.core.errors import ConfigError, nearest

if TYPE_CHECKING:
    from splitveil.models.split import SplitModel

__all__ = ["create", "describe", "names"]


def names() -> list[str]:
    """All model names."""
    return MODELS.names()


def describe(name: str) -> str:
    """What a model is, in one sentence."""
    return MODELS.describe(name)


def create(name: str, *, image_shape: tuple[int, int, int], num_classes: int, **options: Any) -> SplitModel:
    """Build a split network. Options: `cut`, `output` ("sigmoid", "batchnorm", "none"), `mean`, `std`."""
    from splitveil.models.layers import build_split

    known = {"image_shape", "num_classes", "cut", "output", "mean", "std"}
    for key in options:
        if key not in known:
            raise ConfigError(f"Unknown key 'model {name}.{key}'.", nearest(key, known))
    return build_split(MODELS.load(name), image_shape=image_shape, num_classes=num_classes, **options)
