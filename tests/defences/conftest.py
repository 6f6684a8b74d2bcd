"""Small made-up pictures as a data set, so that the real trainer can run in a moment."""

from __future__ import annotations

import numpy as np
import pytest

from splitveil import data
from splitveil.core.config import load_config


@pytest.fixture(scope="session")
def small_data(tmp_path_factory):
    """48 training and 12 test pictures, 8 x 8, three classes that a network can tell apart."""
    random = np.random.default_rng(5)

    def labels(count):
        return np.arange(count) % 3

    def draw(count):
        base = labels(count)[:, None, None, None] * 60 + 40
        return np.clip(base + random.integers(-40, 40, (count, 8, 8, 1)), 0, 255).astype(np.uint8)

    path = tmp_path_factory.mktemp("data") / "small.npz"
    np.savez(path, train_x=draw(48), train_y=labels(48), test_x=draw(12), test_y=labels(12))
    return path


@pytest.fixture(scope="session")
def small_parts(small_data):
    config = load_config(data={"name": str(small_data), "augment": False})
    return data.load(config.data, config.seed)
