"""Defences that act on the feature, the loss or the model, and compose with every surrogate.

One file per defence, listed in `core/catalogue.py`. `[defence.NAME]` tables act in the order written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splitveil.core.catalogue import DEFENCES

if TYPE_CHECKING:
    from splitveil.defences.base import Defence

__all__ = ["create", "describe", "names"]


def names() -> list[str]:
    """All defence names."""
    return DEFENCES.names()


def describe(name: str) -> str:
    """What a defence does, in one sentence."""
    return DEFENCES.describe(name)


def create(name: str, **options: Any) -> Defence:
    """Build a defence from its options."""
    cls = DEFENCES.load(name)
    defence: Defence = cls(cls.Options.parse(options, f"defence {name}"))
    return defence
