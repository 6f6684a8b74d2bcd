"""A sweep as a person reads it first: one line per cell, and what a search found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from splitveil.core.listed import listed
from splitveil.experiments.sweep.cells import strengths

NAMED = 4  # cells that are named in a line about many
IDLE = "accuracy no better than always naming the most frequent class"


def table(tree: dict[str, Any]) -> str:
    """One line per cell of this call, one per warning of training, and one about what else lies in the folder."""
    rows = []
    cells, others = asked(tree)
    for entry in cells:
        accuracy = "" if entry["accuracy"] is None else f"{entry['accuracy']:.1%}"
        mse = "" if entry.get("mse") is None else f"{entry['mse']:.5f}"
        rows.append(
            [
                entry["id"],
                entry["method"],
                Path(entry["data"]).name,
                " ".join(strengths(entry["coordinates"])),
                str(entry["seed"]),
                entry["status"],
                accuracy,
                mse,
                str(len(_events(entry)) or ""),
                entry["error"] or _broken(entry),
            ]
        )
    lines = _aligned(
        [["cell", "method", "data", "strength", "seed", "status", "accuracy", "MSE", "warnings", ""], *rows]
    )
    lines += _warnings(cells)
    for found in tree.get("search", []):
        best, name = found["best"], " ".join(filter(None, [found["method"], found["data"]]))
        if best is None:
            lines.append(f"search of {name}: no trial succeeded")
            continue
        values = ", ".join(f"{key} = {value:g}" for key, value in best["values"].items())
        why = "nothing new was left to try: give" if found.get("spent") else "no trial came nearer: give more --trials,"
        near = "" if found["reached"] else f"; {why} another range or a wider --tolerance"
        told = f"{best['accuracy']:.1%} on validation pictures (target {found['target']:.1%})"
        lines.append(f"search of {name}: {values} has accuracy {told}{near}")
    if others:
        failed = sum(entry["status"] == "failed" for entry in others)
        told = f" ({failed} of them failed)" if failed else ""
        lines.append(f"In the same folder, from other calls: {len(others)} more cells{told}.")
    return "\n".join(lines)


def _aligned(rows: list[list[str]]) -> list[str]:
    """Columns as wide as they need; one that is empty below its head is left out."""
    used = [column for column in range(len(rows[0])) if any(row[column] for row in rows[1:])]
    widths = {column: max(len(row[column]) for row in rows) for column in used}
    return ["  ".join(row[column].ljust(widths[column]) for column in used).rstrip() for row in rows]


def _warnings(cells: list[dict[str, Any]]) -> list[str]:
    """What training warned of, each once, with the cells and how often it happened in them."""
    found: dict[str, list[str]] = {}
    for entry in cells:
        name = f"{entry['method']} seed {entry['seed']} ({entry['id']})"
        for event, times in _events(entry).items():
            found.setdefault(event, []).append(f"{name} {times}".rstrip())
    return [f"warning, {event}: {listed(names, NAMED, ', ')}" for event, names in found.items()]


def _events(entry: dict[str, Any]) -> dict[str, str]:
    """What training warned of in one cell, and how often; a sweep.json of an earlier version says nothing of it."""
    found = {event: str(times) for event, times in (entry.get("warnings") or {}).items()}
    return found | ({IDLE: ""} if entry.get("works") is False else {})


def _broken(entry: dict[str, Any]) -> str:
    """The attacks that broke down in a cell that is done all the same: its worst case is over fewer."""
    failed = entry.get("failed_attacks") or {}
    told = "; ".join(f"{name} ({mode}): {why}" for mode, found in failed.items() for name, why in found.items())
    return f"without {told}" if told else ""


def asked(tree: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The cells that this call asked for, and the others in the folder."""
    own = set(tree.get("asked", [entry["id"] for entry in tree["cells"]]))
    mine = [entry for entry in tree["cells"] if entry["id"] in own]
    return mine, [entry for entry in tree["cells"] if entry["id"] not in own]
