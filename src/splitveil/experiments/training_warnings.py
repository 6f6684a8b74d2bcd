"""What the guards of training counted in a run, such as steps that were skipped: `guards` in result.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from splitveil.experiments.loose import number, table


def training_warnings(result: Mapping[str, Any]) -> dict[str, int]:
    """How often each event happened, without those that never did.

    >>> training_warnings({"guards": {"steps skipped": 3, "batches with non-finite features": 0}})
    {'steps skipped': 3}
    """
    counts = {event: number(times) for event, times in table(result.get("guards")).items()}
    return {event: int(times) for event, times in counts.items() if times}
