"""Strips: every value of a row as a short stroke on one axis."""

from __future__ import annotations

from splitveil.report.charts.frame import Box, columns, px, svg, text
from splitveil.report.charts.heat import short
from splitveil.report.charts.scale import fit
from splitveil.report.markup import Html, Phrase

ROW = 20


def strip_chart(rows: list[tuple[str, list[float]]], title: Phrase, x_label: Phrase, even: Phrase) -> Html:
    """`even` names the line at 1, where all values would be if they were equal."""
    box = Box(460, 62 + ROW * len(rows), left=104, right=18, top=20, bottom=42)
    x = fit([value for _, values in rows for value in values] + [1.0], box.x0, box.x1)
    body = [columns(box, x)]
    body.append(f'<line class="floor" x1="{px(x(1))}" x2="{px(x(1))}" y1="{box.y1}" y2="{box.y0}"/>')
    body.append(text(x(1), box.y1 - 6, even, "tick mid"))
    for place, (name, values) in enumerate(rows):
        top = box.y1 + ROW * place
        body.append(text(box.x0 - 8, top + ROW / 2, short(name), "tick end", ' dy=".34em"'))
        strokes = "".join(f"M{px(x(value))} {px(top + 4)}v{ROW - 8}" for value in values)
        body.append(f'<path class="rug" d="{strokes}"/>')
    body.append(f'<line class="axis" x1="{box.x0}" x2="{box.x1}" y1="{box.y0}" y2="{box.y0}"/>')
    body.append(text((box.x0 + box.x1) / 2, box.height - 8, x_label, "name mid"))
    return svg(box, "".join(body), title, "strip")
