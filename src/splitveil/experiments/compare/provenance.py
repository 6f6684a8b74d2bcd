"""How a data file says it came about, so that somebody else can make it again; no path of this machine in it."""

from __future__ import annotations

import os
from pathlib import Path

from splitveil.core.recipes import PUBLISHED
from splitveil.core.shell import command, shown_path
from splitveil.experiments.compare.collect import Collection
from splitveil.experiments.compare.comparison import Comparison
from splitveil.experiments.compare.data_file import DataFile, read_data_file
from splitveil.experiments.compare.stored import Options


def with_provenance(
    comparison: Comparison,
    options: Options,
    collection: Collection,
    told: DataFile,
    *,
    reference: Path | None,
    out: Path | None,
) -> DataFile:
    """The records of a comparison with title, commands and notes: those `told` by the caller, else those of the files
    that were compared. `reference` is the file of the published numbers, `out` the file that all this is for."""
    stored = options.stored
    view = options.view.plain()
    if reference is not None:
        own = reference.parent == PUBLISHED
        view["reference"] = (
            reference.stem if own else Path(os.path.relpath(reference, out.parent if out else None)).as_posix()
        )
    same = stored.commands and not (options.given or told.commands)
    return DataFile(
        comparison.records,
        told.title or stored.title,
        stored.commands if same else _commands(options, collection, told.commands, _again(options, reference, out)),
        told.notes or stored.notes,
        view,
        tuple(collection.notes),
    )


def _commands(options: Options, collection: Collection, told: tuple[str, ...], own: str) -> tuple[str, ...]:
    """How the runs were made. This very command, `own`, comes last, unless the caller's list has a comparison already:
    theirs says where the runs lie, this one may know bare names alone."""
    if any("splitveil compare" in line for line in told):
        return tuple(dict.fromkeys(told))
    earlier = [line for path in options.paths if path.is_file() for line in read_data_file(path).commands]
    made = [line for home, sweep in collection.sweeps.items() for line in sweep.commands(shown_path(home))]
    return tuple(dict.fromkeys([*(told or earlier + made), own]))


def _again(options: Options, reference: Path | None, out: Path | None) -> str:
    """The command that makes the same again."""
    words = [shown_path(path) for path in options.paths]
    for key, value in options.given.items():
        if key == "reference":
            continue
        option = "--" + key.removesuffix("s" if key in ("attacks", "pairs") else "").replace("_", "-")
        for item in value if isinstance(value, list) else [value]:
            if item:
                words += [option] if item is True else [option, " vs ".join(item) if key == "pairs" else f"{item}"]
    if reference is not None:
        words += ["--reference", reference.stem if reference.parent == PUBLISHED else shown_path(reference)]
    words += ["--out", shown_path(out)] if out else []
    return command("compare", *words)
