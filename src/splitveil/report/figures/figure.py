"""What a figure is, and where its texts come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from splitveil.report.explain_file import Explained, Matrix, Row
from splitveil.report.markup import Content, Html, Phrase

Words = Callable[..., Phrase]
"""How a figure gets its texts: `markup.phrase` for the page, one language for a file."""

MOST_CLASSES = 20


@dataclass(frozen=True)
class Figure:
    """One figure. `name` is its file name without suffix; `head` and `rows` tell its numbers."""

    name: str
    title: Phrase
    caption: Phrase
    chart: Html
    head: list[Content]
    rows: list[list[Content]]
    wide: bool = False


def make_figure(
    name: str, words: Words, chart: Html, head: list[Content], rows: list[list[Content]], *, wide: bool = False
) -> Figure:
    return Figure(name, words(f"figure.{name}"), words(f"caption.{name}"), chart, head, rows, wide)


def class_rows(matrix: Matrix, explained: Explained) -> list[tuple[str, Row]]:
    """Named rows of a class by class table; many classes are cut to those in the batch, then to the first twenty."""
    rows = [(explained.class_name(number), row) for number, row in enumerate(matrix)]
    if len(rows) > MOST_CLASSES:
        rows = [(name, row) for name, row in rows if any(value is not None for value in row)]
    return rows[:MOST_CLASSES] if any(value is not None for _, row in rows for value in row) else []
