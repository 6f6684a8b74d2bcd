"""What `splitveil sweep` does: plan the cells, run those that are not finished, sum them up in sweep.json."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from splitveil.core.code_version import code_version
from splitveil.core.errors import UsageError
from splitveil.core.locks import only_writer
from splitveil.core.manifest import torch_version
from splitveil.core.places import check_folder
from splitveil.core.stopping import stopped_in_order
from splitveil.experiments.discover import is_run
from splitveil.experiments.sweep.cells import Cell, expand, seed_by_seed
from splitveil.experiments.sweep.engine import Engine, LocalEngine
from splitveil.experiments.sweep.folder import MadeBy, SweepFolder
from splitveil.experiments.sweep.gpu_sharing import can_share, shared_gpu
from splitveil.experiments.sweep.live import Settings, Sweep, Watcher
from splitveil.experiments.sweep.needs import check_needs
from splitveil.experiments.sweep.own_data import look_again
from splitveil.experiments.sweep.recipe import SweepRecipe
from splitveil.experiments.sweep.runner import cores

log = logging.getLogger("splitveil.sweep")

GPU_GIB_PER_WORKER, GPU_WORKERS = 12, 4


def run_sweep(recipe: SweepRecipe, settings: Settings, watch: Watcher = lambda progress: None) -> dict[str, Any]:
    """Run every cell of a sweep that is not finished yet, and return what sweep.json says in the end."""
    cells = expand(recipe)
    check_needs(cells, settings)
    with start(recipe, cells, settings) as sweep:
        for cell in seed_by_seed(cells):
            sweep.add(cell)
        sweep.entries = {cell.id: sweep.entries[cell.id] for cell in cells}  # the table has the order of the recipe
        sweep.write()
        while sweep.open:
            sweep.step(watch)
    return read_sweep(settings.out)


@contextmanager
def start(recipe: SweepRecipe, cells: list[Cell], settings: Settings) -> Iterator[Sweep]:
    """Plan a sweep in its folder and start its engine; at the end, however it comes, sweep.json is written."""
    for cell in cells:
        if cell.also:
            verb = "is" if len(cell.also) == 1 else "are"
            log.warning("%s %s the same run as %s; it runs once", ", ".join(cell.also), verb, cell.label)
    check_folder(settings.out)
    if is_run(settings.out):
        raise UsageError(
            f"{settings.out} holds a run, which no table or page would show any more beside a sweep.",
            "Choose another folder with --out.",
        )
    maker = made_by(settings.device)  # refuses a device that is not there, before a folder is made
    with only_writer(settings.out, tidy=True), stopped_in_order():
        folder = SweepFolder(settings.out)
        look_again()
        moved = folder.set_aside(recipe, maker, settings.mixed)
        for sentence in moved:
            log.warning("set aside in %s, out of this sweep's table: %s", folder.path / ".aside", sentence)
        if moved:
            log.warning("what the sweep needs of them runs again; to keep cells of other code, use --mixed")
        workers = settings.workers or default_workers(maker["device"])
        together = maker["device"] == "cuda" and settings.engine == "local" and workers > 1
        with shared_gpu() if together else nullcontext():
            engine = make_engine(settings, workers)
            sweep = Sweep(recipe.name, settings, engine, maker)
            sweep.extra["calls"] = folder.calls(recipe.call)
            if recipe.sweep.compare is not None:
                sweep.extra["compare"] = recipe.sweep.compare.model_dump(exclude_defaults=True)
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
        cells = [folder.entry(one) for one in folder.descriptions()]
        if not cells:
            raise UsageError(f"{out} holds no sweep.", "Make one with: splitveil sweep RECIPE --out DIR") from None
        return {"recipe": None, "made_by": None, "cells": cells}


def made_by(device: str) -> MadeBy:
    """What this process would make results with."""
    from splitveil.training.device import pick_device

    return {
        "code": code_version(),
        "torch": torch_version(),
        "device": pick_device(device).type,
    }


def make_engine(settings: Settings, workers: int) -> Engine:
    from splitveil.training.device import pick_device

    device = pick_device(settings.device).type
    if settings.engine == "local":
        return LocalEngine(workers, device, settings.out / "workers.log")
    from splitveil.experiments.sweep.ray_engine import RayEngine

    return RayEngine(workers, device)


def default_workers(device: str) -> int:
    """A CPU: one worker per core. A GPU: as many runs as are faster side by side than in turn."""
    if device == "cpu":
        return cores()
    if not can_share():
        return 1
    import torch

    gib = torch.cuda.get_device_properties(0).total_memory / 2**30
    return max(1, min(GPU_WORKERS, int(gib // GPU_GIB_PER_WORKER)))
