"""The options of a comparison: those that the caller gives, else those with which data files were written, or that the
recipes of sweeps have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from splitveil.experiments.compare.data_file import DataFile, agreed, read_data_file
from splitveil.experiments.compare.sweep_index import read_sweep
from splitveil.experiments.compare.view import View
from splitveil.experiments.discover import SWEEP

TESTED = {"baseline", "pairs"}  # what is tested against what: one takes the other's place


@dataclass(frozen=True)
class Options:
    """What holds for a comparison of `paths`."""

    paths: list[Path]
    view: View
    reference: str | None  # the name or path of published numbers
    given: Mapping[str, Any]  # what the caller gave of all this
    stored: DataFile  # what the paths themselves have to say
    unsettled: list[str]  # names of options in which the paths differ, so that the defaults are taken


def settle(paths: list[Path], chosen: Mapping[str, Any], reference: str | None) -> Options:
    """`chosen` are options of a View by name, empty where the caller does not say."""
    stored, differing = stored_options(paths)
    given = {key: value for key, value in chosen.items() if value}
    View(at=tuple(given.get("at", ())))  # refuses what is no number, which reading would leave out as it does in files
    replaced = TESTED if given.keys() & TESTED else set()
    view = View.of({**{key: value for key, value in stored.view.items() if key not in replaced}, **given})
    if reference is not None:
        given["reference"] = reference
    elif stored.view.get("reference"):
        reference = str(stored.view["reference"])
    return Options(paths, view, reference, given, stored, sorted(differing - given.keys() - replaced))


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
