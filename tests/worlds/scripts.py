"""Programs of this repository that are no package: loaded from their files, so that tests can call their functions."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def load_script(place: str) -> ModuleType:
    """The module in a file below the repository's root, such as `scripts/make_results.py`."""
    spec = importlib.util.spec_from_file_location(Path(place).stem, ROOT / place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
