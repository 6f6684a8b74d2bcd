"""What a sweep says about its cells: which of them have nothing to show, and why."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from splitveil.experiments.loose import items, read_table, table, text
from splitveil.report.markup import Phrase, phrase

FILE = "sweep.json"


@dataclass(frozen=True)
class Sweep:
    """OUT/sweep.json as far as the page needs it."""

    path: Path
    name: str
    recipe: str | None
    cells: int
    finished: int
    failed: tuple[tuple[str, str, str], ...]  # cell, method, first line of its error
    damage: Phrase | None = None


def read_sweep(path: Path) -> Sweep | None:
    """The sweep in a folder; None when the folder is not one. A damaged file is a sweep of which nothing is known."""
    tree, problem = read_table(path / FILE)
    if problem == "missing":
        return None
    name = path.resolve().name
    if problem:
        return Sweep(path, name, None, 0, 0, (), phrase("note.damaged", file=FILE, reason=problem))
    cells = [table(item) for item in items(tree.get("cells"))]
    failed = [
        (text(cell.get("id")) or "?", text(cell.get("method")) or "?", error.splitlines()[0][:200])
        for cell in cells
        if (error := text(cell.get("error")))
    ]
    finished = sum(1 for cell in cells if cell.get("status") == "done")
    return Sweep(path, name, text(tree.get("recipe")), len(cells), finished, tuple(failed))
