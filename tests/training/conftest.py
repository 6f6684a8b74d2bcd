"""A run that trains in a second."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from splitveil import data
from splitveil.core.config import Config, load_config
from splitveil.core.run_folder import RunFolder
from splitveil.training.engine import Engine


@pytest.fixture
def make_config(small_data: Path) -> Callable[..., Config]:
    def make(*overrides: str, surrogate: dict[str, Any] | None = None) -> Config:
        tree: dict[str, Any] = {
            "data": {"name": str(small_data)},
            "model": {"name": "tiny"},
            "defence": {"bottleneck": {"channels": 2}, "noise": {"sigma": 0.05}},
            "train": {"epochs": 3, "batch_size": 32, "checkpoint_every": 1},
        }
        if surrogate is not None:
            tree["surrogate"] = surrogate
        return load_config(overrides=list(overrides), **tree)

    return make


@pytest.fixture
def make_engine(make_config: Callable[..., Config], tmp_path: Path) -> Callable[..., Engine]:
    def make(*overrides: str, surrogate: dict[str, Any] | None = None, name: str = "run") -> Engine:
        config = make_config(*overrides, surrogate=surrogate)
        return Engine(config, data.load(config.data, config.seed), RunFolder(tmp_path / name), torch.device("cpu"))

    return make
