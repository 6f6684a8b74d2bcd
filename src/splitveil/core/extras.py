"""Packages that come with an extra, looked for before the work that needs them."""

from __future__ import annotations

import importlib.util

from splitveil.core.errors import MissingExtraError


def require(extra: str, *packages: str) -> None:
    """Refuse, in a sentence that says how to get it, where one of `packages` is not installed; imports none of them."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, extra)
