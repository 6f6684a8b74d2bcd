"""Attention maps on request: what is stored, and that storing changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import splitveil as sv
from splitveil.core.config import Config
from splitveil.training.evaluate import clean_features
from splitveil.training.gate_maps import gate_maps
from splitveil.training.loaded_run import load_run

MakeConfig = Callable[..., Config]
BATCH, CLASSES = 32, 3
OPTIONS: dict[str, dict[str, Any]] = {"slot_cross": {"num_heads": 2}}  # must divide the channels
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {  # tiny on 8x8 pictures with 2 channels at the cut: D = 2·2·2
    "gated": {"attn": (BATCH,), "gate_class": (CLASSES,), "gate_soft": (CLASSES, 1, 8), "gate_hard": (CLASSES, 1, 8)},
    "slot_gated": {
        "resp": (BATCH, 8),
        "slot_mass": (CLASSES, 8),
        "gate_class": (CLASSES,),
        "gate_soft": (CLASSES, 8, 8),
        "gate_hard": (CLASSES, 8, 8),
        "shut": (),
    },
    "slot_cross": {"resp": (BATCH, 8), "slot_mass": (CLASSES, 8)},
    "gmm": {"resp": (BATCH, 5), "slot_mass": (CLASSES, 5)},
}


@pytest.mark.parametrize("name", SHAPES)
def test_active_epochs_leave_their_maps(name: str, make_config: MakeConfig, tmp_path: Path) -> None:
    surrogate: dict[str, Any] = {"name": name, "mode": "faithful"} | OPTIONS.get(name, {})
    config = make_config("train.warmup_epochs=1", "train.store_gates=true", surrogate=surrogate)
    run = load_run(sv.train(config, out=tmp_path / "run").path)
    assert run.surrogate is not None
    stored = sorted(path.name for path in (run.folder.path / "gates").iterdir())
    assert stored == ["epoch-0002.safetensors", "epoch-0003.safetensors"]
    maps = load_file(run.folder.path / "gates" / "epoch-0003.safetensors")
    assert {key: tuple(maps[key].shape) for key in SHAPES[name]} == SHAPES[name]
    assert torch.equal(maps["labels"], run.parts.train.labels[:BATCH])
    # they are those of the finished model on the clean features of these pictures
    z, y = next(clean_features(run.model, run.parts.train.subset(torch.arange(BATCH))))
    again = gate_maps(run.surrogate, z, y, epoch=3)
    assert maps.keys() == again.keys()
    for key in maps:
        assert torch.allclose(maps[key].float(), again[key].float(), atol=1e-6), key


@pytest.mark.parametrize("name", ["slot_gated", "slot_cross", "enhanced"])
def test_storing_changes_no_weight(name: str, make_config: MakeConfig, tmp_path: Path) -> None:
    weights = []
    for store in ("true", "false"):
        config = make_config(
            "train.epochs=2", f"train.store_gates={store}", surrogate={"name": name} | OPTIONS.get(name, {})
        )
        folder = sv.train(config, out=tmp_path / store)
        weights.append(load_file(folder.checkpoints / "model.safetensors"))
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    assert not (tmp_path / "false" / "gates").exists()


def test_gates_of_few_classes_are_found_under_their_own_number() -> None:
    """With more classes than a batch can hold, the surrogate keeps rows for some only."""
    surrogate = sv.surrogates.create("gated", feature_shape=(4,), num_classes=9, sigma=0.1, mode="faithful")
    y = torch.tensor([7, 7, 7, 2, 2, 2])
    z = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    few = gate_maps(surrogate, z, y)
    many = gate_maps(surrogate, torch.cat([z, torch.zeros(30, 4)]), torch.cat([y, torch.full((30,), 5)]))
    assert few["gate_soft"].shape == many["gate_soft"].shape == (9, 1, 4)
    for key in ("gate_soft", "gate_hard"):
        assert torch.allclose(few[key][[2, 7]], many[key][[2, 7]], atol=1e-6)
        assert (few[key].abs().sum(dim=(1, 2)) > 0).sum() == 3  # 6 samples make at most 3 classes of 2
    assert torch.equal(few["class_used"].nonzero().flatten(), torch.tensor([2, 7]))


def test_modes_and_hooks_are_left_as_they_were() -> None:
    surrogate = sv.surrogates.create("slot_gated", feature_shape=(4,), num_classes=2, sigma=0.1)
    before = {name: value.clone() for name, value in surrogate.state_dict().items()}
    gate_maps(surrogate, torch.randn(8, 4), torch.arange(8) % 2)
    assert surrogate.training
    assert all(not module._forward_hooks for module in surrogate.modules())
    assert all(torch.equal(before[name], value) for name, value in surrogate.state_dict().items())
