"""The options with which data files were written, or that the recipes of sweeps have: compare repeats them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from splitveil.experiments.compare.data_file import DataFile, agreed, read_data_file
from splitveil.experiments.compare.sweep_index import read_sweep
from splitveil.experiments.discover import SWEEP


def stored_options(paths: list[Path]) -> tuple[DataFile, set[str]]:
    """Of one path everything it has to say. Of several the options in which all agree that have any; and the names of
    the others."""
    found = [_placed(read_data_file(path), path.parent) for path in paths if path.is_file()]
    sweeps = [path for path in paths if (path / SWEEP).is_file()]
    found += [_placed(DataFile([], view=read_sweep(path).compare), path.parent) for path in sweeps]
    if len(paths) == 1:
        return (found or [DataFile([])])[0], set()
    views = [one.view for one in found]
    common = agreed(views)
    return DataFile([], view=common), {key for view in views for key in view} - common.keys()


def _placed(one: DataFile, home: Path) -> DataFile:
    """With a reference that is a file told from here instead of from where it was named."""
    path = home / str(one.view.get("reference", ""))
    return replace(one, view={**one.view, "reference": str(path)}) if path.is_file() else one
