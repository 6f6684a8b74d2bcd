"""Clouds of points in panels side by side, one colour and one shape per class, with a legend."""

from __future__ import annotations

from dataclasses import dataclass

from splitveil.report.charts.frame import COLOURS, Box, mark, px, svg, text
from splitveil.report.charts.heat import frame, short
from splitveil.report.markup import Html, Phrase, attribute

SIDE = 330  # a panel is square: both axes have the same unit
GAP = 36
# Drawn around a point: circle (a dot of the pen), square, triangle, diamond; in the order of frame.MARKS.
SHAPES = ("h.01", "m-2.2-2.2h4.4v4.4h-4.4z", "m0-3.1l3.1 5.5h-6.2z", "m0-3.3l3.3 3.3-3.3 3.3-3.3-3.3z")


@dataclass(frozen=True)
class Cloud:
    """The points of one class; `number` chooses colour and shape, None is faint grey for the rest."""

    name: Phrase
    number: int | None
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Panel:
    """One square of a scatter chart."""

    title: Phrase
    x_label: Phrase
    y_label: Phrase
    clouds: tuple[Cloud, ...]


def scatter_chart(panels: list[Panel], title: Phrase) -> Html:
    """Panels from left to right; the legend below is shared."""
    entries: dict[Phrase, int | None] = {cloud.name: cloud.number for panel in panels for cloud in panel.clouds}
    columns = 5 if len(panels) > 1 else 3
    lines = -(-len(entries) // columns)
    across = len(panels) * SIDE + (len(panels) - 1) * GAP
    box = Box(across + 34, SIDE + 62 + 19 * lines, left=28, top=26)
    body = []
    for place, panel in enumerate(panels):
        x0 = box.x0 + place * (SIDE + GAP)
        body.append(text(x0 + SIDE / 2, 15, panel.title, "title mid"))
        body.append(frame(x0, box.y1, SIDE, SIDE))
        body.append(text(x0 + SIDE / 2, box.y1 + SIDE + 17, panel.x_label, "name mid"))
        turn = f' transform="translate({px(x0 - 8)} {px(box.y1 + SIDE / 2)}) rotate(-90)"'
        body.append(text(0, 0, panel.y_label, "name mid", turn))
        body += [_cloud(cloud, panel, x0, box.y1) for cloud in sorted(panel.clouds, key=lambda c: c.number is not None)]
    top, column = box.y1 + SIDE + 44, across / columns
    for place, (name, number) in enumerate(entries.items()):
        x, y = box.x0 + 8 + place % columns * column, top + 19 * (place // columns)
        sign = f'<g class="spot {_colour(number)}">{mark(number or 0, x, y, 4)}</g>'
        body.append(sign + text(x + 11, y, short(name), "name", ' dy=".34em"'))
    return svg(box, "".join(body), title, "scatter")


def _colour(number: int | None) -> str:
    return "rest" if number is None else f"k{number % COLOURS}"


def _cloud(cloud: Cloud, panel: Panel, x0: float, y0: float) -> str:
    """Points of all panels are in units of the panel: -1 to 1 on both axes, y upwards."""
    far = max((abs(v) for c in panel.clouds for point in c.points for v in point), default=1.0) or 1.0
    half = SIDE / 2
    scale = (half - 8) / far
    # as frame.mark chooses them: colour and shape do not repeat together
    shape = 0 if cloud.number is None else (cloud.number + cloud.number // 8) % len(SHAPES)
    path = "".join(f"M{px(x0 + half + a * scale)} {px(y0 + half - b * scale)}{SHAPES[shape]}" for a, b in cloud.points)
    kind = "dots round" if shape == 0 else "dots"
    tip = attribute("data-tip", cloud.name)
    return f'<path class="{kind} {_colour(cloud.number)}" d="{path}" {tip}/>' if cloud.points else ""
