"""Every example in a docstring runs and gives what it says."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import splitveil

PACKAGE = Path(splitveil.__file__).parent


def modules() -> list[str]:
    """Names of the modules that hold an example."""
    files = [path for path in PACKAGE.rglob("*.py") if ">>> " in path.read_text(encoding="utf-8")]
    names = [".".join(("splitveil", *path.relative_to(PACKAGE).with_suffix("").parts)) for path in files]
    return sorted(name.removesuffix(".__init__") for name in names)


@pytest.mark.parametrize("name", modules())
def test_examples_run(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted > 0
    assert found.failed == 0
