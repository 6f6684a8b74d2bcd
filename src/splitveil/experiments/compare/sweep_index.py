"""What a sweep says about its cells: the method's name, and whether the cell has finished."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import Any

from splitveil.core.shell import command
from splitveil.experiments.discover import SWEEP
from splitveil.experiments.loose import items, read_table, table, text


@dataclass(frozen=True)
class Sweep:
    """What a sweep.json says: the method of each cell, which cells failed and why, which have no result yet.

    `methods` also knows cells by the names that somebody gave their folders since.
    """

    path: Path
    methods: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    unfinished: tuple[str, ...] = ()
    cells: int = 0
    finished: int = 0
    calls: tuple[tuple[str, ...], ...] = ()  # words of the commands that made it, without --out
    problem: str | None = None
    compare: Mapping[str, Any] = field(default_factory=dict)  # how the recipe wants it compared

    @property
    def name(self) -> str:
        return self.path.resolve().name

    def commands(self, out: str) -> list[str]:
        """The commands that make it again, into the folder `out`."""
        return [command("sweep", *words, "--out", out) for words in self.calls]

    def notes(self) -> list[str]:
        """One sentence for each thing that is not as it should be."""
        found = [f"{self.name}: cell {one} ({self.methods.get(one)}) failed: {why}" for one, why in self.failed.items()]
        if self.problem:
            found.append(
                f"{self.name}/{SWEEP} cannot be read ({self.problem}); its methods are named after their settings."
            )
        if self.unfinished:
            shown = ", ".join(self.unfinished[:5]) + (", ..." if len(self.unfinished) > 5 else "")
            found.append(f"{self.name}: {len(self.unfinished)} of {self.cells} cells have no result yet ({shown}).")
        return found


def read_sweep(folder: Path) -> Sweep:
    """Read OUT/sweep.json; a damaged one leaves the runs without names, and says so."""
    tree, problem = read_table(folder / SWEEP)
    if problem:
        return Sweep(folder, problem=problem)
    listed = tree.get("cells")
    if isinstance(listed, dict):
        cells = [{"id": key, **table(value)} for key, value in listed.items()]
    else:
        cells = [table(value) for value in items(listed)]
    places = _renamed(folder, {text(cell.get("id")) for cell in cells})
    methods, failed, unfinished = {}, {}, []
    for cell in cells:
        identity, method = text(cell.get("id")), text(cell.get("method"))
        if identity is None:
            continue
        place = places.get(identity, identity)
        if method is not None:
            methods[identity] = methods[place] = method
        error = text(cell.get("error"))
        if error:
            failed[identity] = shorten(error.splitlines()[0], 160, placeholder=" ...")
        elif not (folder / "cells" / place / "result.json").is_file():
            unfinished.append(identity)
    finished = sum(1 for cell in cells if cell.get("status") == "done")
    return Sweep(
        folder,
        methods,
        failed,
        tuple(unfinished),
        len(cells),
        finished,
        _calls(tree),
        compare=table(tree.get("compare")),
    )


def _renamed(folder: Path, cells: set[str | None]) -> dict[str, str]:
    """The folders of cells under other names than their own, which their cell.json tells; a mere copy is none."""
    others = [path for path in folder.glob("cells/*/cell.json") if path.parent.name not in cells]
    found = {identity: path.parent.name for path in others if (identity := text(read_table(path)[0].get("id")))}
    return {identity: name for identity, name in found.items() if not (folder / "cells" / identity).exists()}


def _calls(tree: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """Sweeps of earlier versions know the name of their recipe alone."""
    told = [tuple(word for value in items(call) if (word := text(value))) for call in items(tree.get("calls"))]
    recipe = text(tree.get("recipe"))
    return tuple(call for call in told if call) or (((recipe,),) if recipe else ())


def sweep_of(run: Path) -> Path | None:
    """The sweep to which a run folder belongs: OUT for OUT/cells/ID."""
    parent = run.resolve().parent
    return parent.parent if parent.name == "cells" and (parent.parent / SWEEP).is_file() else None
