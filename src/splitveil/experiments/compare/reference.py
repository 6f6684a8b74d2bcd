"""Published numbers beside ours.

A reference file is TOML (or JSON): `title`, `source` (a sentence), optional `explanation` (a paragraph below the
table), `attack` and `[tolerance]`, and `[[row]]` tables. A row has a `label`, the published values (a number, or two
for a range), and what it takes to be the same experiment: `surrogate`, `defences` (besides bottleneck and noise),
`mode`, `data`, and `settings` by their dotted keys. Some files come with Splitveil and are called by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from splitveil.core.errors import ConfigError, nearest
from splitveil.core.recipes import PUBLISHED
from splitveil.experiments.compare.cells import Cell, Group
from splitveil.experiments.compare.estimate import Estimate
from splitveil.experiments.compare.labels import STRUCTURAL, acting, defences
from splitveil.experiments.compare.measures import MEASURES
from splitveil.experiments.compare.summaries import cell_estimate
from splitveil.experiments.loose import interval, items, number, read_table, table, text

KEYS = ("label", "attack", "mode", "data", "surrogate", "defences", "settings", "note", *MEASURES)


@dataclass(frozen=True)
class Row:
    """One published row."""

    label: str
    values: Mapping[str, tuple[float, float]]  # a single number is a range of width 0
    attack: str = "decoder"
    mode: str | None = None
    data: str | None = None
    surrogate: str | None = None
    defences: tuple[str, ...] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    def fits(self, group: Group, cell: Cell) -> bool:
        """Whether the cell is the same experiment."""
        if self.mode not in (None, group.setting.mode) or self.data not in (None, cell.settings.get("data.name")):
            return False
        settings = acting(cell.settings)
        if self.surrogate is not None and self.surrogate != (text(settings.get("surrogate.name")) or "none"):
            return False
        beside = {name for name in defences(settings) if name not in STRUCTURAL}
        if self.defences is not None and set(self.defences) != beside:
            return False
        return all(settings.get(key) == value for key, value in self.settings.items())


@dataclass(frozen=True)
class Reference:
    title: str
    source: str
    rows: tuple[Row, ...]
    tolerance: Mapping[str, float]
    explanation: str = ""


@dataclass(frozen=True)
class Beside:
    """A published row and one of our cells that is the same experiment."""

    row: Row
    group: Group
    cell: Cell
    ours: Mapping[str, Estimate]
    outside: tuple[str, ...]  # measures that miss the tolerance

    def deviation(self, measure: str) -> float | None:
        """Ours minus published (the nearer end of a range, 0 inside it); relative for the MSE."""
        if measure not in self.ours:
            return None
        return deviation(self.ours[measure].mean, self.row.values[measure], relative=measure == "mse")


def deviation(ours: float, published: tuple[float, float], *, relative: bool) -> float:
    """
    >>> round(deviation(0.044, (0.040, 0.040), relative=True), 6), deviation(0.852, (0.850, 0.853), relative=False)
    (0.1, 0.0)
    """
    low, high = published
    if low <= ours <= high:
        return 0.0
    end = low if ours < low else high
    return (ours - end) / end if relative and end else ours - end


def reference_names() -> list[str]:
    """The references that come with Splitveil."""
    return sorted(path.stem for path in PUBLISHED.glob("*.toml"))


def find_reference(name: str, home: Path = Path()) -> Path:
    """The file of a reference: a path, as seen from `home`, or the name of one that comes with Splitveil."""
    path = home / name
    if path.is_file():
        return path
    if name in reference_names():
        return PUBLISHED / f"{name}.toml"
    hint = nearest(name, reference_names())
    raise ConfigError(f"There is no reference '{name}', neither as a file nor by name.", hint)


def read_reference(path: Path) -> Reference:
    """Read and check a reference file."""
    tree, problem = read_table(path)
    if problem:
        raise ConfigError(f"The reference file {path} cannot be read: {problem}.")
    rows = []
    for value in items(tree.get("row")):
        entry = table(value)
        unknown = sorted(set(entry) - set(KEYS))
        if unknown:
            raise ConfigError(f"{path}: unknown key '{unknown[0]}' in a row.", nearest(unknown[0], KEYS))
        rows.append(_row(entry, path, text(tree.get("attack")) or "decoder"))
    if not rows:
        raise ConfigError(f"{path} has no [[row]].", "Write one [[row]] per published line, with a label and numbers.")
    tolerance = {k: v for k, item in table(tree.get("tolerance")).items() if (v := number(item)) is not None}
    title, source, told = (text(tree.get(key)) or "" for key in ("title", "source", "explanation"))
    return Reference(title or path.stem, source, tuple(rows), tolerance, told)


def _row(entry: dict[str, Any], path: Path, attack: str) -> Row:
    label = text(entry.get("label"))
    if label is None:
        raise ConfigError(f"{path}: a row has no label.")
    values = {}
    for measure in MEASURES:
        if measure in entry:
            single = number(entry[measure])
            span = interval(entry[measure]) if single is None else (single, single)
            if span is None:
                raise ConfigError(f"{path}: '{measure}' of '{label}' is neither a number nor a range [low, high].")
            values[measure] = span
    named = entry.get("defences")
    return Row(
        label,
        values,
        text(entry.get("attack")) or attack,
        text(entry.get("mode")),
        text(entry.get("data")),
        text(entry.get("surrogate")),
        None if named is None else tuple(str(name) for name in items(named)),
        table(entry.get("settings")),
        text(entry.get("note")) or "",
    )


def beside(groups: list[Group], reference: Reference) -> tuple[list[Beside], list[str]]:
    """Every published row with each of our cells that is the same experiment, and the rows without any."""
    found, missing = [], []
    for row in reference.rows:
        matches = [(group, cell) for group in groups for cell in group.cells if row.fits(group, cell)]
        for group, cell in matches:
            ours = {name: one for name in row.values if (one := cell_estimate(cell, row.attack, name))}
            pair = Beside(row, group, cell, ours, ())
            outside = tuple(
                name
                for name, limit in reference.tolerance.items()
                if (gap := pair.deviation(name)) is not None and abs(gap) > limit
            )
            found.append(Beside(row, group, cell, ours, outside))
        if not matches:
            missing.append(row.label)
    return found, missing
