"""The curves of a run, thinned on the server so that ten thousand epochs cost the browser no more than ten."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from splitveil.experiments.loose import number, read_rows
from splitveil.report.charts.scale import thin

POINTS = 240  # per curve: about one for every two pixels of a chart
FIRST = ("accuracy", "test_accuracy", "task_loss", "rob_loss", "intra_mse")  # in this order, before the others
HIDDEN = {"epoch", "seconds", "eval_seconds", "refresh_seconds", "skipped", "classes", "shut", "no_bank"}


def version(folder: Path) -> str:
    """Changes when metrics.jsonl does; what the page sends back to hear only of news."""
    try:
        facts = os.stat(folder / "metrics.jsonl")
    except OSError:
        return "-"
    return f"{facts.st_size}.{facts.st_mtime_ns}"


def curves(folder: Path) -> dict[str, Any]:
    """Every number of metrics.jsonl against the epoch: {"version", "epoch", "curves": {name: [[x, y], ...]}}."""
    mark = version(folder)
    rows, _, _ = read_rows(folder / "metrics.jsonl")
    found: dict[str, dict[float, float]] = {}
    last = 0.0
    for place, row in enumerate(rows, start=1):
        x = number(row.get("epoch"))
        x = float(place) if x is None else x
        last = max(last, x)
        for name, value in row.items():
            y = number(value)
            if y is not None and name not in HIDDEN and not name.startswith("nonfinite"):
                found.setdefault(name[:80], {})[x] = y  # a resumed run may hold an epoch twice: the later one counts
    names = [name for name in FIRST if name in found] + sorted(name for name in found if name not in FIRST)
    drawn = {name: [list(point) for point in thin(sorted(found[name].items()), POINTS)] for name in names[:60]}
    return {"version": mark, "epoch": int(last), "curves": drawn}
