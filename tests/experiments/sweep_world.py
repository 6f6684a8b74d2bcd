"""A sweep of four cells that takes seconds, and what must be equal between two ways to run it."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar

from splitveil.experiments.sweep.runner import Outcome, Task, run_cell

RECIPE = """
[data]
name = "{data}"
augment = false
[defence.noise]
sigma = 0.05
[train]
epochs = 3
batch_size = 32
checkpoint_every = 1
[audit]
attacks = ["linear"]
num_images = 30
sanity = false
[sweep]
seeds = [1, 2]
[[sweep.method]]
name = "none"
surrogate = "none"
[[sweep.method]]
name = "gated"
surrogate = {{ name = "gated" }}
"""
CLOCKS = {"seconds", "eval_seconds", "refresh_seconds", "ended"}


def write_recipe(folder: Path, data: Path, more: str = "") -> Path:
    path = folder / "recipe.toml"
    path.write_text(RECIPE.format(data=data) + more)
    return path


def command(recipe: Path, out: Path, *options: str) -> list[str]:
    code = "from splitveil.cli import main; main()"
    return [sys.executable, "-c", code, "sweep", str(recipe), "--out", str(out), "--device", "cpu", *options]


def environment() -> dict[str, str]:
    """Several test processes share the machine; Ray keeps its things out of the way."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "RAY_DEDUP_LOGS": "0"}


def results(out: Path) -> dict[str, Any]:
    """Everything a table could be made of, without clocks: results, curves, audits and the weights themselves."""
    tree = json.loads((out / "sweep.json").read_text())
    return {
        cell["id"]: {
            "entry": _timeless(cell),
            "status": _json(out / "cells" / cell["id"] / "manifest.json")["status"],
            "result": _timeless(_json(out / "cells" / cell["id"] / "result.json")),
            "audit": _timeless(_json(out / "cells" / cell["id"] / "audit" / "audit.json")),
            "curve": [
                _timeless(json.loads(line))
                for line in (out / "cells" / cell["id"] / "metrics.jsonl").read_text().splitlines()
            ],
            "weights": hashlib.sha256(
                (out / "cells" / cell["id"] / "checkpoints" / "model.safetensors").read_bytes()
            ).hexdigest(),
        }
        for cell in tree["cells"]
    }


def _json(path: Path) -> Any:
    return json.loads(path.read_text())


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(item) for key, item in value.items() if key not in CLOCKS}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


def die_over_a_task(pipe: Connection, device: str, workers: int, logfile: Path) -> None:
    """The life of a worker whose task kills it, in the place of the engine's `_work`; it does not even load torch."""
    pipe.recv()
    with logfile.open("a") as file:
        file.write("died\n")
    os.kill(os.getpid(), signal.SIGKILL)


class InlineEngine:
    """Runs cells here and now, and counts them."""

    workers = 1
    ran: ClassVar[list[str]] = []

    def __init__(self) -> None:
        self.waiting: list[Task] = []

    def submit(self, task: Task) -> None:
        self.waiting.append(task)

    def running(self) -> list[str]:
        return []

    def poll(self, seconds: float) -> list[Outcome]:
        task = self.waiting.pop(0)
        self.ran.append(task.id)
        return [run_cell(task)]

    def close(self) -> None:
        self.waiting.clear()
