"""From the paths a user names to records: run folders, sweeps, folders that contain some, data files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from splitveil.core.errors import UsageError
from splitveil.core.listed import listed
from splitveil.experiments.compare.data_file import read_data_file
from splitveil.experiments.compare.record import NOT_ATTACKED, Record
from splitveil.experiments.compare.run_records import read_records, without_card
from splitveil.experiments.compare.sweep_index import Sweep, read_sweep, sweep_of
from splitveil.experiments.discover import find_runs


@dataclass(frozen=True)
class Collection:
    """Everything usable, and what was not."""

    records: list[Record]
    notes: list[str]
    sweeps: dict[Path, Sweep]  # by their folders


def collect(paths: list[Path]) -> Collection:
    """Read all paths. Raises UsageError when nothing in them can be compared."""
    records: list[Record] = []
    notes: set[str] = set()
    folders = [path for path in paths if not path.is_file()]
    for path in paths:
        if path.is_file():
            stored = read_data_file(path)
            records += stored.records
            notes |= set(stored.remarks)
    runs = find_runs(folders) if folders else []
    sweeps: dict[Path, Sweep] = {}
    bare: list[str] = []
    failed: set[str] = set()  # cells whose training or audit broke down: the sweep's own sentence says why
    for run in runs:
        home = sweep_of(run)
        label = None
        if home is not None:
            if home not in sweeps:  # once: it looks at every cell of the sweep
                sweeps[home] = read_sweep(home)
            sweep = sweeps[home]
            label = sweep.methods.get(run.resolve().name)
            if run.resolve().name in sweep.failed:
                failed.add(run.resolve().name)
        found, said = read_records(run, label)
        records += found
        if found and without_card(run):
            bare.append(run.resolve().name)
        # A cell that has not finished is told once, in the sweep's own sentence.
        notes |= {note for note in said if not (label is not None and "has no result.json" in note)}
    for home, sweep in sweeps.items():
        # One cell given by its own path is no reason to speak of the others.
        if any(home.is_relative_to(path.resolve()) for path in folders):
            notes |= set(sweep.notes())
    if bare:
        notes.add(f"Without its card.json nobody can tell whether an audit was changed: {listed(sorted(bare))}.")
    attacked = [record for record in records if record.setting.mode != NOT_ATTACKED]
    if attacked and len(attacked) < len(records):
        left_out = sorted({record.name for record in records} - {record.name for record in attacked} - failed)
        if left_out:
            notes.add(f"No audit yet, left out: {', '.join(left_out)}. Attack them with: splitveil audit RUN")
        records = attacked
    if not records:
        said_all = " ".join(sorted(notes)[:3]) or "No run in them has finished."
        raise UsageError(f"There is nothing to compare in {', '.join(map(str, paths))}.", said_all)
    return Collection(records, sorted(notes), dict(sorted(sweeps.items())))
