"""A sweep on its way: cells are submitted, waited for, and summed up in sweep.json all the while."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from splitveil.audit.earlier import set_aside
from splitveil.core.catalogue import ATTACKS
from splitveil.core.errors import UsageError
from splitveil.experiments.sweep.archive import write_archive
from splitveil.experiments.sweep.cells import Cell, strengths
from splitveil.experiments.sweep.damage import damaged_audits, damaged_files
from splitveil.experiments.sweep.engine import Engine
from splitveil.experiments.sweep.folder import MadeBy, SweepFolder, audit_file, other_audits, own_parts, read_cell
from splitveil.experiments.sweep.runner import Checkpoints, Task

log = logging.getLogger("splitveil.sweep")

POLL_SECONDS = 0.5
WRITE_SECONDS = 2.0  # sweep.json is written at most so often while nothing ends, and always when a cell does
ENGINES = ("local", "ray")


@dataclass(frozen=True)
class Settings:
    """How to run a sweep; none of it changes a result. A slip is refused here, before anything is made or set aside."""

    out: Path
    engine: str = "local"
    workers: int | None = None
    device: str = "auto"
    checkpoints: Checkpoints = "final"
    retry_failed: bool = False
    mixed: bool = False
    export: Path | None = None  # an archive of all finished cells without weights, made anew whenever a cell ends

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise UsageError(f"There is no engine called '{self.engine}'.", "Use local or ray.")
        if self.checkpoints not in get_args(Checkpoints):
            raise UsageError(f"--checkpoints cannot be '{self.checkpoints}'.", "Use final, all or none.")


@dataclass(frozen=True)
class Progress:
    """Where a sweep stands. `fraction` is over all cells, `left` estimates the seconds to come, and `running` pairs the
    label of each running cell with how much of it is done.
    """

    done: int
    failed: int
    total: int
    fraction: float
    left: float | None
    running: tuple[tuple[str, float], ...]
    last: str


Watcher = Callable[[Progress], None]


class Sweep:
    """Cells on their way. `expected` is how many there may be in the end, where that is not known yet (a search)."""

    def __init__(self, name: str, settings: Settings, engine: Engine, made_by: MadeBy) -> None:
        self.name, self.settings, self.engine, self.made_by = name, settings, engine, made_by
        self.folder = SweepFolder(settings.out)
        self.cells: dict[str, Cell] = {}
        self.entries: dict[str, dict[str, Any]] = {}
        self.open: set[str] = set()
        self.extra: dict[str, Any] = {}
        self.expected = 0
        self.written = 0.0
        self.began = time.monotonic()
        self.first_fraction: float | None = None
        self.last = ""

    def add(self, cell: Cell) -> None:
        """One more cell; it is submitted unless its result, or its error, is there already."""
        made_by = {**self.made_by, **own_parts(cell.config)}
        self.folder.bring_back(cell.id, made_by, self.settings.mixed)
        self._without_damage(cell)
        self._relabel(cell)
        self.cells[cell.id] = cell
        entry = self.folder.entry(cell.description())
        if self.settings.retry_failed and entry["failed_attacks"]:
            for mode in entry["failed_attacks"]:
                audit_file(self.folder.run(cell.id), mode, cell.modes).unlink()
            entry = self.folder.entry(cell.description())
        self.entries[cell.id] = entry
        if entry["status"] == "done" or (entry["status"] == "failed" and not self.settings.retry_failed):
            return
        (self.folder.run(cell.id).path / "error.json").unlink(missing_ok=True)
        entry["status"], entry["error"] = "waiting", None
        out, device = self.settings.out.resolve(), self.settings.device
        self.open.add(cell.id)
        self.engine.submit(Task.of(cell, out, device, made_by, self.settings.checkpoints))

    def _without_damage(self, cell: Cell) -> None:
        """What cannot be read, or was made otherwise since, is named and made again."""
        run = self.folder.run(cell.id)
        if broken := damaged_files(run, cell):
            log.warning("%s is damaged (%s): it is set aside and runs again", cell.label, ", ".join(broken))
            self.folder.put_aside(cell.id, damaged=True)
        for file in damaged_audits(run, cell.modes):
            log.warning("%s of %s is damaged: the audit runs again", file.relative_to(run.path), cell.label)
            file.unlink()
        for file in other_audits(run, cell.modes):
            log.warning("%s was attacked with other settings than the sweep's; it is attacked again", cell.label)
            set_aside(file.parent, {})

    def _relabel(self, cell: Cell) -> None:
        """An earlier recipe may have made the same run under another name: say so, and use one name everywhere."""
        before = read_cell(self.folder.run(cell.id))
        now = cell.description()
        if before is None or all(before.get(key) == now[key] for key in ("method", "coordinates")):
            return
        log.warning("%s is the run %s that was called %s before; it is renamed", cell.label, cell.id, _called(before))
        self.folder.run(cell.id).write_json("cell.json", {**before, **now})

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
                entry |= {"status": "failed", "error": outcome.error}  # also where the disk had no room for error.json
            self.last = f"{cell.label}: " + ("failed" if outcome.error else _found(entry))
        running = set(self.engine.running())
        for cell_id in self.open:
            self.entries[cell_id]["status"] = "running" if cell_id in running else "waiting"
        if ended or time.monotonic() - self.written > WRITE_SECONDS:
            self.write()
        if ended:
            self.export()
        watch(self.progress())
        return ended

    def write(self) -> None:
        """sweep.json: the cells of this sweep (`asked`) in their order, then what else lies in the folder."""
        others = [one for one in self.folder.descriptions() if one["id"] not in self.entries]
        entries = [*self.entries.values(), *map(self.folder.entry, others)]
        self.folder.write(self.name, entries, made_by=self.made_by, asked=list(self.entries), **self.extra)
        self.written = time.monotonic()

    def export(self) -> None:
        """Bring the archive up to date, where one is wanted."""
        if self.settings.export is not None:
            write_archive(self.settings.export, self.folder.path)

    def close(self) -> None:
        """Nothing runs any more."""
        for cell_id in self.open:
            self.entries[cell_id]["status"] = "waiting"
        self.write()
        self.export()

    def progress(self) -> Progress:
        statuses = [self.entries[cell_id]["status"] for cell_id in self.cells]
        active = [cell for cell in self.cells.values() if self.entries[cell.id]["status"] == "running"]
        running = tuple((cell.label, self._fraction(cell)) for cell in active)
        total = max(len(statuses), self.expected)
        ended = sum(status in ("done", "failed") for status in statuses)
        fraction = (ended + sum(part for _, part in running)) / max(total, 1)
        if self.first_fraction is None:
            self.first_fraction = fraction
        gained, spent = fraction - self.first_fraction, time.monotonic() - self.began
        left = spent * (1 - fraction) / gained if gained > 0 else None
        return Progress(statuses.count("done"), statuses.count("failed"), total, fraction, left, running, self.last)

    def _fraction(self, cell: Cell) -> float:
        """How much of a running cell is done, its audits counted when they are complete."""
        run = self.folder.run(cell.id)
        try:
            with (run.path / "metrics.jsonl").open("rb") as file:
                epochs = sum(1 for _ in file)
        except OSError:
            return 0.0
        audits = sum(run.audit_in(mode, own=cell.modes[0]).joinpath("audit.json").exists() for mode in cell.modes)
        trained, attacked = min(epochs / cell.config.train.epochs, 1.0), audits / len(cell.modes)
        share = _share_of_training(cell)
        return share * trained + (1 - share) * attacked


def _share_of_training(cell: Cell) -> float:
    """What part of a cell's time its training takes: by epochs, where the recipe names attacks that have some."""
    audit = cell.config.audit
    options = [ATTACKS.load(name).Options.model_validate(given) for name, given in (audit.attacks or {}).items()]
    epochs = [audit.epochs or one.epochs for one in options if hasattr(one, "epochs")]
    own = cell.config.train.epochs
    return own / (own + len(cell.modes) * sum(epochs)) if epochs else 0.5


def _found(entry: dict[str, Any]) -> str:
    leak = "" if entry["mse"] is None else f", MSE {entry['mse']:.4f}"
    return f"accuracy {entry['accuracy']:.1%}{leak}"


def _called(description: dict[str, Any]) -> str:
    return " ".join([str(description.get("method")), *strengths(description.get("coordinates", {}))])
