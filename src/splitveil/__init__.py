"""Splitveil: split neural networks that resist model inversion, and the attacks that check it.

Everything public is reachable from here and loaded on first use, so that importing the package is cheap.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_LAZY = {
    "Config": "splitveil.core.config:Config",
    "SplitModel": "splitveil.models.split:SplitModel",
    "attacks": "splitveil.attacks",
    "audit": "splitveil.audit",
    "data": "splitveil.data",
    "defences": "splitveil.defences",
    "export": "splitveil.serving.export:export_run",
    "load_config": "splitveil.core.config:load_config",
    "load_run": "splitveil.training.loaded_run:load_run",
    "models": "splitveil.models",
    "report": "splitveil.report",
    "serving": "splitveil.serving",
    "split": "splitveil.models.cutting:split",
    "surrogates": "splitveil.surrogates",
    "train": "splitveil.training.api:train",
}

__all__ = ["__version__", *sorted(_LAZY)]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'splitveil' has no attribute '{name}'")
    module, _, attribute = _LAZY[name].partition(":")
    loaded = importlib.import_module(module)
    value = getattr(loaded, attribute) if attribute else loaded
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
