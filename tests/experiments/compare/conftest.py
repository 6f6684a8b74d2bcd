"""Made-up run folders and sweeps. A run here is only what compare reads: config, manifest, result, audits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from splitveil.core.pins import sealed
from splitveil.core.toml import dump_toml

SPREAD = {"mse": 0.03, "ssim": 0.02, "psnr": 0.01}  # half-width of an interval over pictures, as a share of the value


def scores(mse: float, ssim: float = 0.4, **others: float) -> dict[str, Any]:
    entry = {"mse": mse, "ssim": ssim, "psnr": 14.0, "psnr_batch": 13.9, **others}
    spans = {f"{key}_ci95": [entry[key] * (1 - share), entry[key] * (1 + share)] for key, share in SPREAD.items()}
    return entry | spans


def audit_tree(mse: float, **changes: Any) -> dict[str, Any]:
    """An audit.json; `changes` replaces top-level keys."""
    tree: dict[str, Any] = {
        "tier": "standard",
        "mode": "training_time",
        "protocol": "published",
        "data": "cifar10",
        "num_images": 10000,
        "floors": {"mean_image": {"mse": 0.0618}, "class_mean": {"mse": 0.0574}},
        "attacks": {
            "decoder": {**scores(mse * 1.05, recon_acc=0.24), "best_epoch": {"mse": mse * 1.02, "epoch": 40}},
            "linear": scores(mse * 1.6, recon_acc=0.2),
        },
        "worst_case": scores(mse),
        "failures": {},
    }
    tree |= changes
    pins = f"tier:{tree['tier']}|mode:{tree['mode']}|attacks:3aeec1c0"
    return {"signature": f"splitveil:0.1.0|seed:1|audit|{pins}", **tree}


def make_run(
    folder: Path,
    *,
    seed: int = 1,
    accuracy: float | None = 0.85,
    mse: float | None = 0.04,
    surrogate: str | None = "gmm",
    weight: float = 16.0,
    sigma: float = 0.025,
    settings: dict[str, Any] | None = None,
    revision: str = "aaaaaaaaaaaa",
    audit: dict[str, Any] | None = None,
    ended: str = "2026-01-02T03:05:05+00:00",
    data: str = "cifar10",
) -> Path:
    """One finished run. `settings` adds or replaces whole sections; `mse` None leaves the audit out."""
    config: dict[str, Any] = {
        "seed": seed,
        "data": {"name": data, "protocol": "published"},
        "model": {"name": "vgg11", "cut": 4},
        "defence": {"bottleneck": {"channels": 8}, "noise": {"sigma": sigma}},
        "train": {"epochs": 240, "privacy_weight": weight},
        "audit": {"tier": "standard"},
    }
    if surrogate:
        config["surrogate"] = {"name": surrogate, "mode": "corrected", "loss_scale": 1.0}
    config |= settings or {}
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(dump_toml(config), encoding="utf-8")
    write_json(folder / "manifest.json", {
        "versions": {"splitveil": "0.1.0", "torch": "2.11.0+cu128"},
        "hardware": {"gpu": "NVIDIA H200", "processor": "x86_64", "cores": 16},
        "revision": revision,
        "seed": seed,
        "data": {"name": data, "checksum": "0456ee4c"},
        "ended": ended,
        "status": "finished",
    })  # fmt: skip
    write_json(folder / "result.json", {"accuracy_late": accuracy, "signature": f"splitveil:0.1.0|seed:{seed}"})
    if mse is not None:
        write_json(folder / "audit" / "audit.json", audit or audit_tree(mse))
        write_json(folder / "audit" / "card.json", sealed({}))  # it pins nothing, so that tests may change the audit
    return folder


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def make_sweep(root: Path, cells: list[dict[str, Any]]) -> Path:
    """A sweep folder: each cell a dict with "method" and the arguments of `make_run`."""
    index = []
    for number, cell in enumerate(cells):
        arguments = dict(cell)
        identity = f"{number:08x}"
        index.append({
            "id": identity,
            "method": arguments.pop("method"),
            "coordinates": {},
            "seed": arguments.get("seed", 1),
            "status": arguments.pop("status", "finished"),
            "error": arguments.pop("error", None),
        })  # fmt: skip
        if index[-1]["status"] == "finished":
            make_run(root / "cells" / identity, **arguments)
    write_json(root / "sweep.json", {"cells": index})
    return root


@pytest.fixture
def run() -> Callable[..., Path]:
    return make_run


@pytest.fixture
def two_curves(tmp_path: Path) -> Path:
    """Two methods, three strengths, three seeds: `gated` is 0.004 more private at every accuracy."""
    cells = []
    for method, gain in (("gmm", 0.0), ("gated", 0.004)):
        for weight, accuracy, mse in ((4.0, 0.90, 0.020), (8.0, 0.88, 0.030), (16.0, 0.85, 0.040)):
            for seed, shift in ((1, -1.0), (2, 0.5), (3, 0.5)):
                cells.append({
                    "method": method, "surrogate": method, "weight": weight, "seed": seed,
                    "accuracy": accuracy + 0.001 * shift, "mse": mse + gain + 0.0005 * shift * (1 + weight / 16),
                })  # fmt: skip
    return make_sweep(tmp_path / "sweep", cells)


@pytest.fixture
def sweep() -> Callable[..., Path]:
    return make_sweep


@pytest.fixture
def audit() -> Callable[..., dict[str, Any]]:
    return audit_tree


@pytest.fixture
def put() -> Callable[[Path, Any], None]:
    return write_json
