"""Attacks on what a split model sends. One file each, listed in `core/catalogue.py`; base.py has the contract.

>>> from splitveil import attacks
>>> attacks.create("decoder", epochs=3).threat_model.granted()
['features', 'queries', 'auxiliary']
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splitveil.core.catalogue import ATTACKS

if TYPE_CHECKING:
    from splitveil.attacks.base import Attack

__all__ = ["create", "describe", "names"]


def names() -> list[str]:
    """All attack names."""
    return ATTACKS.names()


def describe(name: str) -> str:
    """What an attack does, in one sentence."""
    return ATTACKS.describe(name)


def create(name: str, **options: Any) -> Attack:
    """Build an attack from its options."""
    cls = ATTACKS.load(name)
    attack: Attack = cls(cls.Options.parse(options, f"attack {name}"))
    return attack
