"""What `splitveil sweep` does: plan the cells, run those that are not finished, sum them up in sweep.json."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from splitveil.core.code_version import code_version
from splitveil.core.errors import UsageError
from splitveil.core.files import only_writer
from splitveil.experiments.sweep.cells import Cell, expand
from splitveil.experiments.sweep.engine import Engine, LocalEngine
from splitveil.experiments.sweep.folder import MadeBy, SweepFolder
from splitveil.experiments.sweep.recipe import SweepRecipe
from splitveil.experiments.sweep.runner import Checkpoints, Task

log = logging.getLogger("splitveil.sweep")

POLL_SECONDS = 0.5
WRITE_SECONDS = 2.0  # sweep.json is written at most so often while cells run, and always at the end
GPU_GIB_PER_WORKER, GPU_WORKERS = 12, 4


@dataclass(frozen=True)
class Settings:
    """How to run a sweep; none of it changes a result."""

    out: Path
    engine: str = "local"
    workers: int | None = None
    device: str = "auto"
    checkpoints: Checkpoints = "final"
    retry_failed: bool = False
    mixed: bool = False


@dataclass(frozen=True)
class Progress:
    """Where a sweep stands. `fraction` is over all cells; `left` estimates the seconds to come."""

    done: int
    failed: int
    total: int
    fraction: float
    left: float | None
    running: tuple[str, ...]
    last: str


Watcher = Callable[[Progress], None]


class Sweep:
    """Cells on their way: submit them, wait for them, keep sweep.json true."""

    def __init__(self, name: str, cells: list[Cell], settings: Settings, engine: Engine, made_by: MadeBy) -> None:
        self.name, self.settings, self.engine, self.made_by = name, settings, engine, made_by
        self.folder = SweepFolder(settings.out)
        self.cells = {cell.id: cell for cell in cells}
        self.entries = {entry["id"]: entry for entry in self.folder.entries(cells)}
        self.open: set[str] = set()
        self.extra: dict[str, Any] = {}
        self.written = 0.0
        self.began = time.monotonic()
        self.first_fraction: float | None = None
        self.last = ""

    def add(self, cell: Cell) -> None:
        """One more cell; it is submitted unless its result, or its error, is there already."""
        self.cells[cell.id] = cell
        entry = self.entries[cell.id] = self.folder.entry(cell.description())
        if entry["status"] == "done" or (entry["status"] == "failed" and not self.settings.retry_failed):
            return
        (self.folder.run(cell.id).path / "error.json").unlink(missing_ok=True)
        entry["status"], entry["error"] = "waiting", None
        settings = self.settings
        self.open.add(cell.id)
        self.engine.submit(Task.of(cell, settings.out.resolve(), settings.device, self.made_by, settings.checkpoints))

    def step(self, watch: Watcher) -> list[str]:
        """Wait a moment; ids of the cells that have ended."""
        ended = []
        for outcome in self.engine.poll(POLL_SECONDS):
            self.open.discard(outcome.id)
            cell = self.cells[outcome.id]
            entry = self.entries[outcome.id] = self.folder.entry(cell.description())
            ended.append(outcome.id)
            if outcome.error:
                log.warning("%s failed: %s", cell.label, outcome.error)
            self.last = f"{cell.label}: " + ("failed" if outcome.error else _words(entry))
        running = set(self.engine.running())
        for cell_id in self.open:
            self.entries[cell_id]["status"] = "running" if cell_id in running else "waiting"
        if ended or time.monotonic() - self.written > WRITE_SECONDS:
            self.write()
        watch(self.progress())
        return ended

    def write(self) -> None:
        self.folder.write(self.name, list(self.entries.values()), made_by=self.made_by, **self.extra)
        self.written = time.monotonic()

    def close(self) -> None:
        """Nothing runs any more."""
        for cell_id in self.open:
            self.entries[cell_id]["status"] = "waiting"
        self.write()

    def progress(self) -> Progress:
        statuses = [self.entries[cell_id]["status"] for cell_id in self.cells]
        running = [self.cells[cell_id] for cell_id in self.cells if self.entries[cell_id]["status"] == "running"]
        ended = sum(status in ("done", "failed") for status in statuses)
        fraction = (ended + sum(self._fraction(cell) for cell in running)) / max(len(statuses), 1)
        if self.first_fraction is None:
            self.first_fraction = fraction
        gained, spent = fraction - self.first_fraction, time.monotonic() - self.began
        left = spent * (1 - fraction) / gained if gained > 0 else None
        return Progress(
            statuses.count("done"),
            statuses.count("failed"),
            len(statuses),
            fraction,
            left,
            tuple(cell.label for cell in running),
            self.last,
        )

    def _fraction(self, cell: Cell) -> float:
        """How much of a running cell is done: half for training, the other half for its audits."""
        run = self.folder.run(cell.id)
        try:
            with (run.path / "metrics.jsonl").open("rb") as file:
                epochs = sum(1 for _ in file)
        except OSError:
            return 0.0
        audits = sum(run.audit_in(mode, own=cell.modes[0]).joinpath("audit.json").exists() for mode in cell.modes)
        return min(epochs / cell.config.train.epochs, 1.0) / 2 + audits / len(cell.modes) / 2


def run_sweep(recipe: SweepRecipe, settings: Settings, watch: Watcher = lambda progress: None) -> dict[str, Any]:
    """Run every cell of a sweep that is not finished yet, and return what sweep.json says in the end."""
    cells = expand(recipe)
    with start(recipe.name, cells, settings) as sweep:
        for cell in cells:
            sweep.add(cell)
        sweep.write()
        while sweep.open:
            sweep.step(watch)
    return read_sweep(settings.out)


@contextmanager
def start(name: str, cells: list[Cell], settings: Settings) -> Iterator[Sweep]:
    """Plan a sweep in its folder and start its engine; at the end, however it comes, sweep.json is written."""
    for cell in cells:
        if cell.also:
            log.warning("%s is the same run as %s; it runs once", ", ".join(cell.also), cell.label)
    with only_writer(settings.out):
        maker = made_by(settings.device)
        moved = SweepFolder(settings.out).set_aside(cells, maker, settings.mixed)
        if moved:
            log.warning("set aside, because they do not belong in one table with this sweep: %s", "; ".join(moved))
            log.warning("they run again; to keep cells of other code in the table, use --mixed")
        engine = make_engine(settings)
        sweep = Sweep(name, cells, settings, engine, maker)
        try:
            yield sweep
        finally:
            try:
                engine.close()
            finally:
                sweep.close()


def read_sweep(out: Path) -> dict[str, Any]:
    """sweep.json; made again from the cells when it is missing or damaged."""
    folder = SweepFolder(out)
    try:
        return json.loads((out / "sweep.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        if not folder.ids():
            raise UsageError(f"{out} holds no sweep.", "Make one with: splitveil sweep RECIPE --out DIR") from None
        return {"recipe": None, "made_by": None, "cells": folder.entries([])}


def made_by(device: str) -> MadeBy:
    """What this process would make results with."""
    from splitveil.training.api import pick_device

    return {
        "code": code_version(),
        "torch": metadata.version("torch").split("+")[0],
        "device": pick_device(device).type,
    }


def make_engine(settings: Settings) -> Engine:
    from splitveil.training.api import pick_device

    device = pick_device(settings.device).type
    workers = settings.workers or default_workers(device)
    if settings.engine == "local":
        return LocalEngine(workers, device, settings.out / "workers.log")
    if settings.engine == "ray":
        from splitveil.experiments.sweep.ray_engine import RayEngine

        return RayEngine(workers, device)
    raise UsageError(f"There is no engine called '{settings.engine}'.", "Use local or ray.")


def default_workers(device: str) -> int:
    """A CPU: one worker per core. A GPU: as many runs as fit well side by side."""
    if device == "cpu":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    import torch

    gib = torch.cuda.get_device_properties(0).total_memory / 2**30
    return max(1, min(GPU_WORKERS, int(gib // GPU_GIB_PER_WORKER)))


def _words(entry: dict[str, Any]) -> str:
    accuracy = entry.get("accuracy")
    return "done" if accuracy is None else f"accuracy {accuracy:.1%}"
