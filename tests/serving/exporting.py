"""Small runs to export; conftest.py trains and exports those that several tests share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.worlds.small_data import write_small_data

from splitveil.core.config import load_config
from splitveil.core.run_folder import RunFolder
from splitveil.serving import writing
from splitveil.serving.artefact import Artefact
from splitveil.training.api import train

NOISE = {"noise": {"sigma": 0.05}}
THREE = {"bottleneck": {"channels": 4}, "dropout": {"p": 0.2}, "noise": {"sigma": 0.05, "law": "laplace"}}
DISCO = {"disco": {"hidden": 4, "ratio": 0.2, "adversary_blocks": 0, "adversary_width": 4}}
ATTENTION = {"name": "slot_cross", "mode": "corrected", "classifier": "attention", "num_slots": 2, "num_heads": 2}


def train_small(folder: Path, defence: dict[str, Any] = NOISE, **sections: Any) -> RunFolder:
    """A run on pictures of 8 x 8 that is good enough to tell right from wrong."""
    data = folder.parent / "small.npz"
    if not data.exists():
        data.parent.mkdir(parents=True, exist_ok=True)
        write_small_data(data)
    tree: dict[str, Any] = {
        "data": {"name": str(data), "augment": False},
        "model": {"name": "tiny", "cut": 2},
        "defence": defence,
        "train": {"epochs": 3, "batch_size": 32, "lr": 0.02},
        "audit": {"attacks": ["linear"], "num_images": 6, "sanity": False},
    }
    for name, section in sections.items():
        tree[name] = {**tree.get(name, {}), **section}
    return train(load_config(**tree), out=folder, device="cpu")


def take_graphs(artefact: Artefact, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on exports take the graphs of this artefact instead of tracing their own."""
    for name, file in (("export_edge", "edge.onnx"), ("export_cloud", "cloud.onnx")):
        monkeypatch.setattr(writing, name, lambda *_, file=file: artefact.load(file))
