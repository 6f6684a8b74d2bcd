"""Curves of several runs, or of several parts of one run, over one axis."""

from __future__ import annotations

import math
from dataclasses import dataclass

from splitveil.report.charts.frame import Box, axes, mark, px, svg, text
from splitveil.report.charts.scale import Point, Scale, fit, log_fit, thin
from splitveil.report.markup import Html, Phrase, attribute

NO_METHOD = -1  # a curve that the buttons of the page's legend do not hide
EMPTY = Phrase("", "")
MARKS = 8  # marks on a curve, where it has some


@dataclass(frozen=True)
class Curve:
    """One line: the method it belongs to (number and CSS colour), its name in the tooltip, its points."""

    method: int
    colour: str
    name: Phrase
    points: tuple[Point, ...]
    dashed: bool = False
    shape: int | None = None  # the kind of marks on it, so that it is known without colour


def line_chart(
    curves: list[Curve],
    title: Phrase,
    x_label: Phrase,
    *,
    y_label: Phrase = EMPTY,
    percent_y: bool = False,
    unit_y: bool = False,
    zero_y: bool = False,
    limit_y: float | None = None,
    log_x: bool = False,
    legend: bool = False,
    box: Box | None = None,
) -> Html:
    """A line per curve. The script reads `data-v` for the tooltip, so that it shows the data, not the pixels.

    `unit_y` makes the y axis run from 0 to 1, `zero_y` lets it begin at 0 where no value lies below, `limit_y` draws
    larger values at the upper edge, `log_x` counts factors on the x axis, and `legend` names the curves at the right,
    which a figure of its own needs.
    """
    box = box or Box(340, 210, left=48)
    drawn = [(curve, thin(sorted(curve.points))) for curve in curves if curve.points]
    xs = [p[0] for _, points in drawn for p in points]
    log_x = log_x and min(xs) > 0
    x: Scale = log_fit(xs, box.x0, box.x1) if log_x else fit(xs, box.x0, box.x1, pad=0.0)
    highest = math.inf if limit_y is None else limit_y
    y = fit([min(p[1], highest) for _, points in drawn for p in points], box.y0, box.y1, zero=zero_y)
    if unit_y:
        y = Scale(0.0, 1.0, box.y0, box.y1)
    whole = all(value == int(value) for value in xs)
    body = [axes(box, x, y, x_label, y_label, percent_y=percent_y, whole_x=whole)]
    for curve, points in drawn:
        path = " ".join(f"{px(x(a))},{px(y(min(b, highest)))}" for a, b in points)
        values = " ".join(f"{a:.6g},{b:.4g}" for a, b in points)
        dashed = " dashed" if curve.dashed else ""
        shape = (
            f'<polyline points="{path}"/>'
            if len(points) > 1
            else f'<circle cx="{px(x(points[0][0]))}" cy="{px(y(min(points[0][1], highest)))}" r="3"/>'
        )
        if curve.shape is not None:
            step = -(-len(points) // MARKS)
            shape += "".join(mark(curve.shape, x(a), y(min(b, highest)), 3) for a, b in points[::step])
        owner = f' data-m="{curve.method}"' if curve.method != NO_METHOD else ""
        body.append(
            f'<g class="curve {curve.colour}{dashed}"{owner} data-v="{values}" '
            f"{attribute('data-name', curve.name)}>{shape}</g>"
        )
    if legend:
        body += [_entry(curve, box, place) for place, (curve, _) in enumerate(drawn)]
    body.append(f'<line class="cross" x1="0" x2="0" y1="{box.y1}" y2="{box.y0}"/>')
    frame = f' data-x="{x.low:.6g} {x.high:.6g} {box.x0} {box.x1} {box.width}"' + (" data-percent" if percent_y else "")
    return svg(box, "".join(body), title, "lines", frame + (" data-log" if log_x else ""))


def _entry(curve: Curve, box: Box, place: int) -> str:
    at_x, at_y = box.x1 + 14, box.y1 + 8 + 19 * place
    line = f'<polyline points="{at_x},{at_y} {at_x + 20},{at_y}"/>'
    sign = mark(curve.shape, at_x + 10, at_y, 3) if curve.shape is not None else ""
    dashed = " dashed" if curve.dashed else ""
    name = text(at_x + 26, at_y, curve.name, "name", ' dy=".34em"')
    return f'<g class="curve {curve.colour}{dashed}">{line}{sign}</g>{name}'
