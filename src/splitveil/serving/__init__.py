"""Serving: artefacts, the two halves, and what travels between them.

>>> from splitveil import serving
>>> "EdgeHalf" in dir(serving)
True
"""

from __future__ import annotations

import importlib
from typing import Any

_LAZY = {  # loaded on first use: a device that reads an artefact must not load what exports one
    "Artefact": "artefact",
    "CloudHalf": "halves",
    "EdgeClient": "client",
    "EdgeHalf": "halves",
    "FeatureClient": "probing",
    "HttpTransport": "transport",
    "LocalTransport": "transport",
    "Manifest": "manifest",
    "RepeatGuard": "repeats",
    "SecureSource": "random_inputs",
    "SeededSource": "random_inputs",
    "export_model": "export",
    "export_run": "export",
    "read": "artefact",
}

__all__ = sorted(_LAZY)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'splitveil.serving' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"splitveil.serving.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
