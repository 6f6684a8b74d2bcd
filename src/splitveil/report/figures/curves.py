"""Curves over training, named in the figure itself."""

from __future__ import annotations

from splitveil.report import numbers
from splitveil.report.charts.frame import Box
from splitveil.report.charts.lines import Curve, line_chart
from splitveil.report.explain_file import Explained, Matrix
from splitveil.report.figures.figure import Words
from splitveil.report.markup import Content, Html, Phrase


def curve_chart(curves: list[Curve], title: Phrase, words: Words, y_label: Phrase, *, unit: bool) -> Html:
    longest = max(_width(name) for curve in curves for name in (curve.name.en, curve.name.zh))
    box = Box(460, max(230, 76 + 19 * len(curves)), left=58, right=44 + round(longest))
    return line_chart(
        curves, title, words("word.epoch"), y_label=y_label, unit_y=unit, zero_y=True, legend=True, box=box
    )


def by_epoch(explained: Explained, values: Matrix) -> list[list[Content]]:
    step = -(-len(explained.epochs) // 20)
    kept = list(range(0, len(explained.epochs), step))
    return [[f"{explained.epochs[place]:g}", *(numbers.plain(value) for value in values[place])] for place in kept]


def _width(name: str) -> float:
    """About how wide a name is; a Chinese character is twice as wide as a letter."""
    return sum(12.5 if ord(letter) > 0x2E80 else 7.4 for letter in name)
