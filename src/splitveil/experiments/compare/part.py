"""What a comparison is written in: titled tables of words and sentences, before anybody chooses Markdown or LaTeX."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Grid:
    """A table of words."""

    caption: str
    head: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Part:
    """A heading, what to know first, tables, remarks below them, and paragraphs at the end."""

    title: str
    intro: list[str] = field(default_factory=list)
    grids: list[Grid] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    closing: list[str] = field(default_factory=list)
