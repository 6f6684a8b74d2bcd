"""Which forms a comparison can be written in, and which one a file name asks for."""

from __future__ import annotations

from pathlib import Path

from splitveil.core.errors import UsageError, nearest
from splitveil.experiments.compare.comparison import Comparison
from splitveil.experiments.compare.data_file import DataFile, data_text
from splitveil.experiments.compare.machine import as_csv, as_tree
from splitveil.experiments.compare.prose import parts
from splitveil.experiments.compare.reference import Reference
from splitveil.experiments.compare.render import as_latex, as_markdown, as_text

SUFFIXES = {".txt": "text", ".md": "markdown", ".tex": "latex", ".csv": "csv", ".json": "json"}


def choose_format(name: str | None, out: Path | None) -> str:
    """The named form, else the one that the file's suffix asks for, else text."""
    known = sorted(SUFFIXES.values())
    if name is not None:
        if name not in known:
            raise UsageError(f"There is no format called '{name}'.", nearest(name, known))
        return name
    if out is None:
        return "text"
    if out.suffix not in SUFFIXES:
        hint = f"Use one of {', '.join(SUFFIXES)}, or say --format."
        raise UsageError(f"Nothing is known about files that end in '{out.suffix}'.", hint)
    return SUFFIXES[out.suffix]


def write_as(
    form: str, comparison: Comparison, reference: Reference | None, about: DataFile, *, summary: bool = True
) -> str:
    """The comparison in one of the forms. `about` is what a data file holds; the JSON has a `summary`, too, unless it
    is for keeps: whoever reads the file computes it again."""
    if form == "json":
        return data_text(about, as_tree(comparison, reference) if summary else None)
    if form == "csv":
        return as_csv(comparison)
    write = {"text": as_text, "markdown": as_markdown, "latex": as_latex}[form]
    return write(parts(comparison, reference))
