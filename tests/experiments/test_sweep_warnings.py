"""What the training of a sweep's cells warned of, told in the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from splitveil.experiments.sweep.folder import SweepFolder
from splitveil.experiments.sweep.table import table

SKIPPED = "steps skipped for a non-finite loss or gradient"
SHUT = "epochs in which the surrogate was mostly shut off"


def cell(sweep: Path, name: str, seed: int, **result: Any) -> dict[str, Any]:
    """What sweep.json says of a cell whose result.json says this."""
    folder = sweep / "cells" / name
    (folder / "audit").mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps({"accuracy_late": 0.5, **result}))
    (folder / "audit" / "audit.json").write_text("{}")
    about = {"id": name, "method": "gmm", "coordinates": {}, "seed": seed, "data": "x", "modes": ["training_time"]}
    return SweepFolder(sweep).entry(about)


def test_each_warning_is_told_once_with_its_cells_and_counts(tmp_path: Path) -> None:
    entries = [cell(tmp_path, f"c{seed}", seed, guards={SKIPPED: seed, SHUT: 0}) for seed in range(1, 7)]
    entries.append(cell(tmp_path, "idle", 7, guards={SHUT: 3}, works=False))
    entries.append(cell(tmp_path, "good", 8, guards={SKIPPED: 0}, works=True))
    head, *lines = table({"cells": entries}).splitlines()
    assert "warnings" in head
    assert [line.split()[-1] for line in lines[:8]] == ["1"] * 6 + ["2", "50.0%"]
    assert lines[8:] == [
        f"warning, {SKIPPED}: gmm seed 1 (c1) 1, gmm seed 2 (c2) 2, gmm seed 3 (c3) 3, gmm seed 4 (c4) 4, and 2 more",
        f"warning, {SHUT}: gmm seed 7 (idle) 3",
        "warning, accuracy no better than always naming the most frequent class: gmm seed 7 (idle)",
    ]


def test_without_warnings_nothing_is_said(tmp_path: Path) -> None:
    assert "warning" not in table({"cells": [cell(tmp_path, "good", 1, guards={SKIPPED: 0}, works=True)]})
    assert "warning" not in table({"cells": [cell(tmp_path, "old", 1)]}), "a run of an earlier version"
