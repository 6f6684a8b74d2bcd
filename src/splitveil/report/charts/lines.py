"""Curves of several runs over one axis."""

from __future__ import annotations

from dataclasses import dataclass

from splitveil.report.charts.frame import Box, axes, px, svg
from splitveil.report.charts.scale import Point, fit, thin
from splitveil.report.markup import Html, Phrase, attribute


@dataclass(frozen=True)
class Curve:
    """One line: the method it belongs to (number and CSS colour), its name in the tooltip, its points."""

    method: int
    colour: str
    name: Phrase
    points: tuple[Point, ...]
    dashed: bool = False


def line_chart(
    curves: list[Curve], title: Phrase, x_label: Phrase, *, percent_y: bool = False, box: Box | None = None
) -> Html:
    """A line per curve. The script reads `data-v` for the tooltip, so that it shows the data, not the pixels."""
    box = box or Box(340, 210, left=48)
    drawn = [(curve, thin(sorted(curve.points))) for curve in curves if curve.points]
    x = fit([p[0] for _, points in drawn for p in points], box.x0, box.x1, pad=0.0)
    y = fit([p[1] for _, points in drawn for p in points], box.y0, box.y1)
    whole = all(p[0] == int(p[0]) for _, points in drawn for p in points)
    body = [axes(box, x, y, x_label, Phrase("", ""), percent_y=percent_y, whole_x=whole)]
    for curve, points in drawn:
        path = " ".join(f"{px(x(a))},{px(y(b))}" for a, b in points)
        values = " ".join(f"{a:.6g},{b:.4g}" for a, b in points)
        dashed = " dashed" if curve.dashed else ""
        shape = (
            f'<polyline points="{path}"/>'
            if len(points) > 1
            else f'<circle cx="{px(x(points[0][0]))}" cy="{px(y(points[0][1]))}" r="3"/>'
        )
        body.append(
            f'<g class="curve {curve.colour}{dashed}" data-m="{curve.method}" data-v="{values}" '
            f"{attribute('data-name', curve.name)}>{shape}</g>"
        )
    body.append(f'<line class="cross" x1="0" x2="0" y1="{box.y1}" y2="{box.y0}"/>')
    frame = f' data-x="{x.low:.6g} {x.high:.6g} {box.x0} {box.x1} {box.width}"' + (" data-percent" if percent_y else "")
    return svg(box, "".join(body), title, "lines", frame)
