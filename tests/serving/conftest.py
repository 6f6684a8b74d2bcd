"""Fixtures of the serving tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.worlds.small_artefact import write_small_artefact

from splitveil.serving.artefact import Artefact, read


@pytest.fixture
def small_artefact(tmp_path: Path) -> Artefact:
    """An artefact whose answers one computes by hand (see `tests/worlds/small_artefact.py`)."""
    write_small_artefact(tmp_path / "artefact")
    return read(tmp_path / "artefact")
