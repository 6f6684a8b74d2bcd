"""`--search`: find the strength at which a method has a wanted accuracy, with Optuna.

Every method and data set is searched on its own. A trial is a value of each axis; it is run as ordinary cells, one per
seed, and scored by how far its accuracy is from the target. Accuracy here is that on validation pictures (the mean of
the last eighth of epochs): the test pictures choose nothing. The history is in OUT/search.json; what Optuna proposes
depends on that history alone, so a search that was killed goes on as if it had not been.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from splitveil.core.files import write_json
from splitveil.core.run_folder import RunFolder, late_accuracies
from splitveil.experiments.loose import items, table
from splitveil.experiments.sweep.api import read_sweep, start
from splitveil.experiments.sweep.cells import Cell, check_comparison, data_of, methods_of, points
from splitveil.experiments.sweep.folder import read_json
from splitveil.experiments.sweep.live import Settings, Sweep, Watcher
from splitveil.experiments.sweep.needs import check_needs
from splitveil.experiments.sweep.recipe import SweepRecipe
from splitveil.experiments.sweep.study import Axis, Goal, Study, load_optuna

log = logging.getLogger("splitveil.sweep")


def run_search(
    recipe: SweepRecipe, settings: Settings, axes: list[Axis], goal: Goal, watch: Watcher = lambda progress: None
) -> dict[str, Any]:
    """Search every method of a sweep; return what sweep.json says in the end."""
    load_optuna()
    studies, fixed = _studies(recipe, axes)
    history = settings.out / "search.json"
    first = [*fixed, *(cell for study in studies for cell in study.cells(_middle(axes)))]
    check_comparison(recipe, first)
    if not history.exists():  # an earlier search may have all its cells
        check_needs(first, settings)
    known = table((read_json(history) or {}).get("studies"))  # a damaged history is none
    for study in studies:
        study.recall([table(trial) for trial in items(known.get(study.name))], axes)
    call = (*recipe.call, *(word for axis in axes for word in ("--search", str(axis))), *goal.words())
    with start(replace(recipe, call=call), fixed, settings) as sweep:
        sweep.expected = len(fixed) + goal.trials * sum(len(study.cells(_middle(axes))) for study in studies)
        for cell in fixed:
            sweep.add(cell)
        for study in studies:
            for trial in study.trials:
                _submit(study, trial, sweep)
        _hear(studies, sweep)  # what earlier calls have finished
        while _propose(studies, axes, goal, sweep) or sweep.open:
            _keep(studies, goal, sweep, history)
            sweep.step(watch)
            _hear(studies, sweep)
        _keep(studies, goal, sweep, history)
    return read_sweep(settings.out)


def _studies(recipe: SweepRecipe, axes: list[Axis]) -> tuple[list[Study], list[Cell]]:
    """What is searched, and the cells of methods with nothing to search: without a surrogate its weight is idle."""
    keys = {axis.key for axis in axes}
    studies, fixed = [], []
    for method in methods_of(recipe):
        grid = {key: values for key, values in {**recipe.sweep.grid, **method.grid}.items() if key not in keys}
        for data in data_of(recipe):
            for point in points(grid):
                study = Study(recipe, method, data, point)
                cells = study.cells(_middle(axes))
                idle = all(key == "train.privacy_weight" or key.startswith("surrogate.") for key in keys)
                if idle and cells[0].config.surrogate is None:
                    log.info("%s has no surrogate, so there is nothing to search: it runs as it is", study.name)
                    fixed += study.cells({})
                else:
                    studies.append(study)
    return studies, fixed


def _propose(studies: list[Study], axes: list[Axis], goal: Goal, sweep: Sweep) -> bool:
    """Give idle workers something to do: the study with the fewest trials comes first. False when there is nothing."""
    while len(sweep.open) < sweep.engine.workers:
        unfinished = [s for s in studies if not s.spent and not s.reached(goal) and len(s.trials) < goal.trials]
        if not unfinished:
            return False
        study = min(unfinished, key=lambda study: len(study.trials))
        trial = study.propose(axes, goal.target)
        if trial is not None:
            _submit(study, trial, sweep)
            _hear(studies, sweep)
    return True


def _submit(study: Study, trial: Mapping[str, Any], sweep: Sweep) -> None:
    for cell in study.cells(trial["values"]):
        if cell.id not in sweep.open:
            sweep.add(cell)


def _hear(studies: list[Study], sweep: Sweep) -> None:
    """Score the trials whose cells have all ended."""
    for study in studies:
        for trial in study.trials:
            if "accuracy" in trial or trial.get("failed"):
                continue
            statuses = [sweep.entries[cell_id]["status"] for cell_id in trial["cells"] if cell_id in sweep.entries]
            if len(statuses) == len(trial["cells"]) and not {"waiting", "running"} & set(statuses):
                study.spent = False
                if "failed" in statuses:
                    trial["failed"] = True
                else:
                    found = [late_accuracy(sweep.folder.run(cell_id)) for cell_id in trial["cells"]]
                    trial["accuracy"] = sum(found) / len(found)


def _keep(studies: list[Study], goal: Goal, sweep: Sweep, history: Path) -> None:
    write_json(history, {"studies": {study.name: study.trials for study in studies}})
    sweep.extra["search"] = [study.summary(goal) for study in studies]


def late_accuracy(run: RunFolder) -> float:
    """Accuracy on validation pictures, mean over the last eighth of the epochs."""
    late = late_accuracies(run.metrics(), "accuracy")
    return sum(late) / len(late)


def _middle(axes: list[Axis]) -> dict[str, float]:
    return {axis.key: axis.at(0.5) for axis in axes}
