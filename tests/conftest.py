"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Two workers share two cores: one thread each is faster than two, and sums are reproducible."""
    torch.set_num_threads(1)


@pytest.fixture
def small_data(tmp_path: Path) -> Path:
    """A data set that trains in a moment: 3 classes of 8x8 grey pictures, told apart by where they are bright."""
    random = np.random.default_rng(0)

    def part(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.arange(count) % 3
        pictures = random.integers(0, 90, (count, 8, 8, 1))
        for index, label in enumerate(labels):
            pictures[index, 2 * label : 2 * label + 3, 2:6] += 150
        return pictures.astype(np.uint8), labels.astype(np.int64)

    train_x, train_y = part(240)
    test_x, test_y = part(60)
    path = tmp_path / "small.npz"
    np.savez(path, train_x=train_x, train_y=train_y, test_x=test_x, test_y=test_y)
    return path


# The same cases on every machine and in every run: a suite that passes today passes tomorrow. To look for new ones:
# HYPOTHESIS_PROFILE=explore python -m pytest ...
settings.register_profile("fixed", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
