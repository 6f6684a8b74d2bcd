"""Programs of this repository that are no package: loaded from their files, so that tests can call their functions."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load_script(place: str) -> ModuleType:
    """The module in a file below the repository's root, such as `scripts/make_results.py`."""
    path = ROOT / place
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(path.parent)  # as for a program that is started: it may import its neighbours
        patch.setitem(sys.modules, path.stem, module)  # dataclasses look for their module there
        spec.loader.exec_module(module)
    return module
