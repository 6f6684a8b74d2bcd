"""The folder of a sweep. Every cell is an ordinary run folder; sweep.json only sums them up and can be made again.

OUT/sweep.json           all cells: id, method, coordinates, seed, data, modes, status, error, warnings, seconds,
                         made_by; `asked` lists those of the latest call
OUT/cells/ID/            run folder (DESIGN 2), and cell.json; error.json where the cell failed
OUT/.aside/TAG/ID/       cells of other code or with other settings, or damaged ones: out of every table, not lost
OUT/workers.log          what the worker processes printed
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splitveil.core.config import Config
from splitveil.core.errors import SplitveilError
from splitveil.core.files import write_json
from splitveil.core.listed import listed
from splitveil.core.plug_ins import pinned, plug_ins_of
from splitveil.core.run_folder import RunFolder
from splitveil.experiments.loose import items, number, read_table, table
from splitveil.experiments.sweep.cells import still_made
from splitveil.experiments.sweep.own_data import pictures_of, start_of
from splitveil.experiments.sweep.recipe import SweepRecipe
from splitveil.experiments.training_warnings import training_warnings

MadeBy = dict[str, str]
"""What must be equal for two results to stand in one table: code, torch, device; for a cell with plug-ins, theirs; for
one on pictures of somebody's own, these; for one that starts from another run, its weights."""
CELL = {"id": str, "method": str, "coordinates": dict, "seed": int, "data": str, "modes": list, "made_by": dict}
KEPT = ("audits", "made_by")  # what a cell.json keeps of how the cell was made
OTHER = {
    "code": "other code",
    "torch": "another torch",
    "device": "another kind of device",
    "plug_ins": "other code of a plug-in",
    "pictures": "other pictures",
    "start": "other weights to start from",
    "settings": "with other settings than the recipe has now",
}
BEGUN = ""  # in place of the signature of an audit that a killed sweep may have finished without noting it
NAMED = 4  # cells that are named in a sentence about many
DAMAGED = "damaged"  # the place in .aside for cells with files that cannot be read


@dataclass(frozen=True)
class SweepFolder:
    """Typed access to the folder of one sweep."""

    path: Path

    def run(self, cell_id: str) -> RunFolder:
        return RunFolder(self.path / "cells" / cell_id)

    def ids(self) -> list[str]:
        """Cells that have been started, finished or not."""
        return sorted(path.parent.name for path in self.path.glob("cells/*/cell.json"))

    def status(self, cell_id: str, modes: Sequence[str]) -> str:
        """done, failed or waiting, as the files say."""
        run = self.run(cell_id)
        if (run.path / "error.json").exists():
            return "failed"
        trained = (run.path / "result.json").exists()
        return "done" if trained and all(attacked(run, mode, modes) for mode in modes) else "waiting"

    def entry(self, description: Mapping[str, Any]) -> dict[str, Any]:
        """One cell of sweep.json."""
        run = self.run(description["id"])
        result, error = (read_json(run.path / name) for name in ("result.json", "error.json"))
        own = read_cell(run)
        modes = description["modes"]
        audits = {mode: read_json(audit_file(run, mode, modes)) for mode in modes}
        worst = (audits[modes[0]] or {}).get("worst_case") if modes else None
        failed = {mode: audit["failures"] for mode, audit in audits.items() if audit and audit.get("failures")}
        parts = [seconds for part in (result, *audits.values()) if part and (seconds := number(part.get("seconds")))]
        return {
            **description,
            "status": self.status(description["id"], modes),
            "accuracy": result.get("accuracy_late") if result else None,
            "mse": number(table(worst).get("mse")),
            "error": error.get("error") if error else None,
            "failed_attacks": failed,
            "warnings": training_warnings(result or {}),
            "works": (result or {}).get("works"),
            "seconds": sum(parts) if parts else None,
            "made_by": own.get("made_by") if own else None,
        }

    def calls(self, latest: tuple[str, ...]) -> list[list[str]]:
        """The commands that made the sweep, each once, in the order in which they were last given."""
        before = items((read_json(self.path / "sweep.json") or {}).get("calls"))
        return [*(call for call in before if call != [*latest]), [*latest]]

    def write(self, recipe: str, entries: list[dict[str, Any]], **more: Any) -> None:
        write_json(self.path / "sweep.json", {"recipe": recipe, **more, "cells": entries})

    def descriptions(self) -> list[dict[str, Any]]:
        """What the cells say about themselves; one whose cell.json is damaged says nothing."""
        trees = [read_cell(self.run(cell_id)) for cell_id in self.ids()]
        return [{key: value for key, value in tree.items() if key not in KEPT} for tree in trees if tree]

    def set_aside(self, recipe: SweepRecipe, made_by: MadeBy, mixed: bool) -> list[str]:
        """Take out of the folder what does not belong in one table with the recipe's cells. Returns a sentence for each
        reason, with the cells it holds for.

        Out go cells made by other code, another torch, another kind of device or from other files (unless `mixed`),
        and cells of the recipe's methods that were made with other settings than the recipe has now.
        """
        moved: dict[str, list[str]] = {}
        for cell_id in self.ids():
            tree = read_cell(self.run(cell_id))
            if tree is None:
                self.put_aside(cell_id)
                moved.setdefault("whose cell.json is damaged", []).append(cell_id)
                continue
            now = {**made_by, **self._own(cell_id)}
            differs = [key for key in now if tree["made_by"].get(key) != now[key]]
            # a cell of an earlier state does not say which files it saw: nobody can tell
            differs = [key for key in differs if key in tree["made_by"] or key not in ("pictures", "start")]
            stale = not still_made(recipe, tree)
            if (differs and not mixed) or stale:
                self.put_aside(cell_id)
                why = OTHER["settings"] if stale else f"made with {' and '.join(OTHER[key] for key in differs)}"
                moved.setdefault(why, []).append(f"{cell_id} ({tree['method']}, seed {tree['seed']})")
        return [f"{_counted(cells)} {why}: {listed(cells, NAMED, ', ')}" for why, cells in moved.items()]

    def _own(self, cell_id: str) -> MadeBy:
        """What only this cell would be made with now."""
        try:
            return own_parts(self.run(cell_id).config())
        except SplitveilError:  # damaged, or its plug-in is gone: others say so
            return {}

    def put_aside(self, cell_id: str, *, damaged: bool = False) -> None:
        """Take one cell out of the folder, so that it starts from nothing; a damaged one never comes back."""
        tree = None if damaged else read_cell(self.run(cell_id))
        tag = DAMAGED if tree is None else _tag(tree["made_by"])
        self._move(self.run(cell_id).path, self.path / ".aside" / tag / cell_id)

    def bring_back(self, cell_id: str, made_by: MadeBy, mixed: bool) -> None:
        """A cell that was set aside and belongs here again."""
        if (self.run(cell_id).path / "cell.json").exists():
            return
        for path in sorted(self.path.glob(f".aside/{'*' if mixed else _tag(made_by)}/{cell_id}")):
            if path.parent.name != DAMAGED:
                self._move(path, self.run(cell_id).path)
                return

    @staticmethod
    def _move(source: Path, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():  # an older copy of the same cell by the same code: keep both, out of the way
            count = sum(1 for _ in target.parent.glob(f"{target.name}*"))
            target.rename(target.with_name(f"{target.name}.{count}"))
        source.rename(target)


def own_parts(config: Config) -> MadeBy:
    """What a cell is made with that others need not be: plug-ins, pictures of somebody's own, another run's weights."""
    return {**pinned(plug_ins_of(config, audit=True)), **pictures_of(config), **start_of(config)}


def audit_file(run: RunFolder, mode: str, modes: Sequence[str]) -> Path:
    """audit.json of one mode; the first of a cell's modes is the recipe's own."""
    return run.audit_in(mode, own=modes[0]) / "audit.json"


def attacked(run: RunFolder, mode: str, modes: Sequence[str]) -> bool:
    """Whether the sweep's audit of one mode is there; one that was begun may be another's that was made since."""
    return audit_file(run, mode, modes).exists() and table((read_cell(run) or {}).get("audits")).get(mode) != BEGUN


def note_audit(run: RunFolder, mode: str, signature: str) -> None:
    """Keep in cell.json which audit of one mode is the sweep's own, or that it was `BEGUN`."""
    tree = read_cell(run) or {}
    run.write_json("cell.json", {**tree, "audits": {**table(tree.get("audits")), mode: signature}})


def other_audits(run: RunFolder, modes: Sequence[str]) -> list[Path]:
    """Every audit.json that somebody made since, with other settings, in the place of the sweep's own."""
    own = table((read_cell(run) or {}).get("audits"))
    files = {mode: audit_file(run, mode, modes) for mode in modes if own.get(mode, BEGUN) != BEGUN}
    return [file for mode, file in files.items() if (tree := read_json(file)) and tree.get("signature") != own[mode]]


def _counted(cells: Sequence[str]) -> str:
    return f"{len(cells)} cell{'' if len(cells) == 1 else 's'}"


def _tag(made_by: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(made_by, sort_keys=True).encode()).hexdigest()[:8]


def read_cell(run: RunFolder) -> dict[str, Any] | None:
    """cell.json; None when it is absent or not what a sweep wrote."""
    tree = read_json(run.path / "cell.json") or {}
    return tree if all(isinstance(tree.get(key), kind) for key, kind in CELL.items()) else None


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON file; None when it is absent or damaged: then the step that writes it runs again."""
    tree, problem = read_table(path)
    return None if problem else tree
