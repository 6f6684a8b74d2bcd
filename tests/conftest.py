"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from tests.worlds.small_data import write_small_data


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Two workers share two cores: one thread each is faster than two, and sums are reproducible."""
    torch.set_num_threads(1)


@pytest.fixture
def small_data(tmp_path: Path) -> Path:
    """A data set that trains in a moment."""
    path = tmp_path / "small.npz"
    write_small_data(path)
    return path


# The same cases on every machine and in every run: a suite that passes today passes tomorrow. To look for new ones:
# HYPOTHESIS_PROFILE=explore python -m pytest ...
settings.register_profile("fixed", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
