"""A folder of runs, the app over it, and one small trained run that all tests of a module share."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra `ui` is not installed (pip install 'splitveil[ui]')")

from starlette.testclient import TestClient

from splitveil.core.config import load_config
from splitveil.core.toml import dump_toml
from splitveil.training.api import train
from splitveil.web.app import create_app

OURS = {"x-splitveil": "1"}
CLASSES = 3
SIDE = 8


def write_run(folder: Path, *, epochs: int = 6, status: str = "finished", accuracy: float = 0.8, **config: Any) -> Path:
    """A run folder without a model: enough for lists and curves."""
    folder.mkdir(parents=True)
    tree: dict[str, Any] = {
        "seed": 1,
        "data": {"name": "fashion-mini", "protocol": "disjoint"},
        "model": {"name": "tiny"},
        "defence": {"noise": {"sigma": 0.1}},
        "surrogate": {"name": "gmm", "mode": "corrected"},
        "train": {"epochs": epochs, "privacy_weight": 2.0},
    }
    (folder / "config.toml").write_text(dump_toml(tree | config), encoding="utf-8")
    manifest = {"status": status, "started": "2026-01-02T03:04:05+00:00", "seed": 1}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    for epoch in range(1, epochs + 1):
        append_epoch(folder, epoch)
    if status == "finished":
        result = {"accuracy_late": accuracy, "seconds": 12.0, "signature": "splitveil:0|config:1"}
        (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    return folder


def append_epoch(folder: Path, epoch: int) -> None:
    row = {"epoch": epoch, "task_loss": 2.0 / epoch, "rob_loss": 1.0 / epoch, "intra_mse": 0.1 / epoch,
           "accuracy": 1 - 0.5 / epoch, "gate_mean": 0.5, "lr": 0.1}  # fmt: skip
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def write_audit(folder: Path, mse: float, ssim: float, **more: Any) -> None:
    audit = {
        "tier": "smoke",
        "num_images": 8,
        "floors": {"mean_image": {"mse": 0.09, "ssim": 0.2}},
        "attacks": {"linear": {"mse": mse, "ssim": ssim, "psnr": 15.0, "seconds": 1.0, "threat_model": ["features"]}},
        "worst_case": {"mse": mse, "ssim": ssim},
    }
    (folder / "audit").mkdir()
    (folder / "audit" / "audit.json").write_text(json.dumps(audit | more), encoding="utf-8")


def pictures(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Grey pictures of three classes: a bright bar whose place tells the class, and whose brightness varies."""
    random = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    values = random.integers(0, 60, (count, SIDE, SIDE, 1))
    for index, label in enumerate(labels):
        values[index, 2 * label : 2 * label + 3, 1:7] += random.integers(90, 190)
    return values.astype(np.uint8), labels.astype(np.int64)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one finished run, `small`, on 8 x 8 pictures. Nobody may change it."""
    root = tmp_path_factory.mktemp("trained")
    data = root.parent / f"{root.name}-pictures.npz"
    (train_x, train_y), (test_x, test_y) = pictures(360, 0), pictures(60, 1)
    np.savez(data, train_x=train_x, train_y=train_y, test_x=test_x, test_y=test_y)
    config = load_config(
        data={"name": str(data), "augment": False},
        model={"name": "tiny"},
        defence={"bottleneck": {"channels": 4}, "noise": {"sigma": 0.05}},
        train={"epochs": 3, "batch_size": 32, "lr": 0.05},
    )
    train(config, out=root / "small", device="cpu")
    return root


@pytest.fixture
def client() -> Iterator[Callable[..., TestClient]]:
    """Open the app over a folder; it has read all runs when the test gets it."""
    opened: list[TestClient] = []

    def make(root: Path, **options: Any) -> TestClient:
        made = TestClient(create_app(root, **options), base_url="http://127.0.0.1:8747")
        made.__enter__()
        opened.append(made)
        services = made.app.state.services  # type: ignore[attr-defined]
        wait(lambda: services.index.scanned)
        return made

    yield make
    for one in opened:
        one.__exit__(None, None, None)


def wait(done: Callable[[], Any], seconds: float = 240.0) -> Any:
    """Poll until something is true; the limit is only there so that a broken test ends."""
    end = time.monotonic() + seconds
    while not (found := done()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return found
