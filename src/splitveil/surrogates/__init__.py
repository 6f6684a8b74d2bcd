"""Conditional-entropy surrogates: one file per loss, listed in `core/catalogue.py`.

>>> from splitveil import surrogates
>>> "gmm" in surrogates.names()
True
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any

from splitveil.core.catalogue import SURROGATES
from splitveil.core.errors import ConfigError, InputError, nearest

if TYPE_CHECKING:
    from splitveil.surrogates.base import Surrogate

__all__ = ["create", "describe", "names"]


def names() -> list[str]:
    """All surrogate names."""
    return SURROGATES.names()


def describe(name: str) -> str:
    """What a surrogate does, in one sentence."""
    return SURROGATES.describe(name)


def create(name: str, *, feature_shape: tuple[int, ...], num_classes: int, sigma: float, **options: Any) -> Surrogate:
    """Build a surrogate. `mode`, `preset` and the option names of the SPEC are keywords (DESIGN 2)."""
    cls = SURROGATES.load(name)
    known = {*cls.Options.model_fields, "feature_shape", "num_classes", "sigma"}
    for key in options:
        if key not in known:  # `sigma` and its like are no options, but as easily misspelt
            raise ConfigError(f"Unknown key 'surrogate {name}.{key}'.", nearest(key, known))
    resolved = cls.resolve(where=f"surrogate {name}", **options)
    try:
        shape, classes = tuple(index(length) for length in feature_shape), index(num_classes)
        noise = float(sigma)
    except (TypeError, ValueError):
        raise InputError(
            f"No surrogate can be made for feature_shape={feature_shape!r}, num_classes={num_classes!r}, "
            f"sigma={sigma!r}.",
            "Give the shape of one feature, such as (8, 8, 8), a whole number of classes and the noise as a number.",
        ) from None
    import torch

    with torch.random.fork_rng(devices=[]):  # initial weights must not shift the caller's random numbers
        surrogate: Surrogate = cls(feature_shape=shape, num_classes=classes, sigma=noise, options=resolved)
    return surrogate
