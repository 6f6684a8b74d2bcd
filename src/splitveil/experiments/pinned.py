"""Do the numbers of a run folder still belong together? Cards and epochs pin them (files: core/pins.py)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from splitveil.core.pins import SEAL, intact
from splitveil.core.run_folder import late_accuracies
from splitveil.experiments.loose import number, read_table, table

OF_THE_CARD = ("format", "limits", SEAL)  # what a card says of itself and of all audits
ROUNDING = 1e-9  # both files hold the same float64; a mean of eighths of test parts differs by far more


def changed_audit(tree: Mapping[str, Any], card: Path) -> bool:
    """Whether an audit.json says something else than the card that was written with it; without a card nobody knows."""
    written, problem = read_table(card)
    if problem is not None:
        return problem != "missing"
    if not intact(written):
        return True
    findings = {name: table(entry).get("findings") for name, entry in table(tree.get("inference")).items()}
    held = {**tree, "inference": findings}
    pinned = {key: value for key, value in written.items() if key not in OF_THE_CARD}
    return not _agree(pinned, held)


def other_accuracy(result: Mapping[str, Any], rows: list[dict[str, Any]], config: Mapping[str, Any]) -> bool:
    """Whether a result.json states another accuracy than the epochs in metrics.jsonl had; without epochs that were
    tested nobody knows. That of the stored weights is held against the last epoch where those are the ones to keep: a
    selected epoch is measured once more at the end, and no line has that number."""
    late = late_accuracies(rows)
    if not late:
        return False
    measured = {"accuracy_late": sum(late) / len(late), "accuracy_last": late[-1]}
    if table(config.get("train")).get("select") == "last":
        measured["accuracy_kept"] = late[-1]
    stated = {key: value for key in measured if (value := number(result.get(key))) is not None}
    return any(abs(value - measured[key]) > ROUNDING for key, value in stated.items())


def _agree(part: Any, whole: Any) -> bool:
    """Whether everything in `part` stands in `whole` too, with the same value."""
    if isinstance(part, dict) and isinstance(whole, Mapping):
        return all(key in whole and _agree(value, whole[key]) for key, value in part.items())
    return part == whole or (part != part and whole != whole)  # NaN
