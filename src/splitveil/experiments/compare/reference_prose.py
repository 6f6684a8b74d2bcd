"""Published numbers beside ours, as one part of the comparison."""

from __future__ import annotations

from splitveil.experiments.compare.comparison import Comparison
from splitveil.experiments.compare.measures import DASH, MEASURES
from splitveil.experiments.compare.part import Grid, Part
from splitveil.experiments.compare.reference import Beside, Reference, beside


def reference_part(comparison: Comparison, reference: Reference) -> Part:
    found, missing = beside(comparison.groups, reference)
    measures = [name for name in MEASURES if any(name in row.values for row in reference.rows)]
    head = [
        "published row",
        "attack",
        "our cell",
        "seeds",
        *(f"{MEASURES[name].title}: ours / published" for name in measures),
    ]
    if reference.tolerance:
        head.append("within tolerance")
    rows = [_beside_row(one, measures, bool(reference.tolerance)) for one in found]
    intro = [reference.source] if reference.source else []
    if reference.tolerance:
        told = ", ".join(
            f"{MEASURES[name].title.split()[0]} {100 * limit:g} {'%' if name == 'mse' else 'points'}"
            for name, limit in reference.tolerance.items()
        )
        intro.append(f"Tolerance: {told}.")
    remarks = [f"Not run here: {'; '.join(missing)}."] if missing else []
    remarks += [f"{row.label}: {row.note}" for row in reference.rows if row.note]
    grids = (
        [Grid("Ours (mean ± standard deviation over seeds) beside published (deviation)", head, rows)] if rows else []
    )
    closing = [reference.explanation] if reference.explanation else []
    return Part(f"Beside published numbers: {reference.title}", intro, grids, remarks, closing)


def _beside_row(one: Beside, measures: list[str], judged: bool) -> list[str]:
    mode = one.group.setting.mode.replace("_", "-")
    row = [one.row.label, f"{one.row.attack}, {mode}", one.cell.name, str(len(one.cell.runs))]
    for name in measures:
        if name not in one.row.values:
            row.append(DASH)
            continue
        measure, ours = MEASURES[name], one.ours.get(name)
        low, high = one.row.values[name]
        published = measure.write(low) if low == high else f"{measure.write(low)}-{measure.write(high)}"
        if ours is None:
            row.append(f"{DASH} / {published}")
            continue
        sd = "" if ours.sd is None else f" ± {measure.write(ours.sd)}"
        gap = one.deviation(name) or 0.0
        told = (
            f"{100 * gap:+.1f} %" if name == "mse" else f"{100 * gap if measure.percent else gap:+.{measure.digits}f}"
        )
        row.append(f"{measure.write(ours.mean)}{sd} / {published} ({told})")
    if judged:
        row.append("yes" if not one.outside else f"no: {', '.join(MEASURES[n].title.split()[0] for n in one.outside)}")
    return row
