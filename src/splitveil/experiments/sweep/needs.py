"""What the cells of a sweep need before the first starts: one that cannot run is refused once, not cell by cell."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from splitveil import data
from splitveil.core.errors import DataError
from splitveil.core.run_folder import starting_run
from splitveil.experiments.sweep.cells import Cell
from splitveil.experiments.sweep.folder import SweepFolder
from splitveil.experiments.sweep.live import Settings
from splitveil.experiments.sweep.trainable import tell_untrainable

log = logging.getLogger("splitveil.sweep")


def check_starts(cells: Iterable[Cell]) -> None:
    """The runs that `train.init_from` names must be finished, and here with their weights."""
    for config in {cell.config.train.init_from: cell.config for cell in cells}.values():
        starting_run(config)


def foresee(cells: list[Cell], engine: str) -> None:
    """What can be told of a sweep that is not to run: as `check_needs`, but data sets that are not stored are named."""
    check_starts(cells)
    if engine == "ray":
        return
    stored = set()
    for name in dict.fromkeys(cell.data for cell in cells):
        try:
            data.check(name)
            stored.add(name)
        except DataError as error:
            log.warning("%s", error)
    tell_untrainable(cell for cell in cells if cell.data in stored)


def check_needs(cells: Iterable[Cell], settings: Settings) -> None:
    """Data sets, starting runs and packages of measures of the cells that will run; finished cells need none.

    Cells that cannot train are named, and not refused: the others run.

    Ray's machines may have what this one does not: there every cell finds out for itself.
    """
    if settings.engine == "ray":
        return
    to_run = [cell for cell in cells if _will_run(cell, settings)]
    # what a cell started from may be gone once the cell has a checkpoint of its own
    folder = SweepFolder(settings.out)
    fresh = [cell for cell in to_run if not any(folder.run(cell.id).checkpoints.glob("state-*.json"))]
    check_starts(fresh)
    for name in dict.fromkeys(cell.data for cell in to_run):
        data.check(name)
    if measures := dict.fromkeys(name for cell in to_run for name in cell.config.audit.measures):
        from splitveil.audit.extra import named  # with torch, which few sweeps need here

        named(measures)
    tell_untrainable(fresh)


def _will_run(cell: Cell, settings: Settings) -> bool:
    folder = SweepFolder(settings.out)
    status = folder.status(cell.id, cell.modes)
    if status == "waiting":  # one that was set aside may come back finished
        return not any(settings.out.glob(f".aside/*/{cell.id}"))
    return status == "failed" and settings.retry_failed
