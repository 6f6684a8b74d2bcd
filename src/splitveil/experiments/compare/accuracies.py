"""A run has two accuracies: the mean of its last epochs, and that of the weights which were stored and attacked.

Published tables have the first. The second belongs to the attack's numbers. Once training has settled the two agree.
"""

from __future__ import annotations

from splitveil.experiments.compare.cells import Group
from splitveil.experiments.compare.view import KEPT, View

APART = 0.01  # a point: more than other noise, or another last epoch, changes after training that has settled


def accuracy_notes(group: Group, view: View) -> list[str]:
    """Which accuracy counts where it is not the usual one, and where the two tell different things."""
    if view.accuracy == KEPT:
        lacking = sum(record.kept is None for record in group.records)
        said = f" {lacking} of {len(group.records)} runs do not know it; their mean of the last epochs counts."
        return [f"Accuracy is that of the attacked weights.{said if lacking else ''}"]
    gaps = [
        (abs(record.kept - record.accuracy), f"{cell.name}, seed {record.seed}", record.kept, record.accuracy)
        for cell in group.cells
        for record in cell.runs
        if record.scores and record.kept is not None and record.accuracy is not None
    ]
    far = [gap for gap in gaps if gap[0] > APART]
    if not far:
        return []
    _, name, kept, late = max(far)
    return [
        f"In {len(far)} of {len(gaps)} runs the accuracy of the attacked weights is more than a point off the mean of "
        f"the last epochs, which counts here (most: {name}, {100 * kept:.1f} % and {100 * late:.1f} %): training had "
        f"not settled. --accuracy {KEPT} compares by the attacked weights."
    ]
