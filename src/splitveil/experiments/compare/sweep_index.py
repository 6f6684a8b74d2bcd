"""What a sweep says about its cells: the method's name, and whether the cell has finished."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from splitveil.experiments.discover import SWEEP
from splitveil.experiments.loose import items, read_table, table, text


@dataclass(frozen=True)
class Sweep:
    """The content of a sweep.json: cell id -> method, what is wrong, and the recipe's name."""

    methods: dict[str, str]
    notes: list[str]
    recipe: str | None = None


def read_sweep(folder: Path) -> Sweep:
    """Read OUT/sweep.json; a damaged one leaves the runs without names, and says so."""
    tree, problem = read_table(folder / SWEEP)
    name = folder.resolve().name
    if problem:
        return Sweep({}, [f"{name}/{SWEEP} cannot be read ({problem}); its methods are named after their settings."])
    listed = tree.get("cells")
    if isinstance(listed, dict):
        cells = [{"id": key, **table(value)} for key, value in listed.items()]
    else:
        cells = [table(value) for value in items(listed)]
    methods, unfinished, notes = {}, [], []
    for cell in cells:
        identity, method = text(cell.get("id")), text(cell.get("method"))
        if identity is None:
            continue
        if method is not None:
            methods[identity] = method
        error = text(cell.get("error"))
        if error:
            notes.append(f"{name}: cell {identity} ({method}) failed: {error.splitlines()[0][:160]}")
        elif not (folder / "cells" / identity / "result.json").is_file():
            unfinished.append(identity)
    if unfinished:
        shown = ", ".join(unfinished[:5]) + (", ..." if len(unfinished) > 5 else "")
        notes.append(f"{name}: {len(unfinished)} of {len(cells)} cells have no result yet ({shown}).")
    return Sweep(methods, notes, text(tree.get("recipe")))


def sweep_of(run: Path) -> Path | None:
    """The sweep to which a run folder belongs: OUT for OUT/cells/ID."""
    parent = run.resolve().parent
    return parent.parent if parent.name == "cells" and (parent.parent / SWEEP).is_file() else None
