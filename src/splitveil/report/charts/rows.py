"""Dots on rows: one row per class, one dot per method. And the short scale at the top of the page."""

from __future__ import annotations

from dataclasses import dataclass

from splitveil.report.charts.frame import Box, columns, mark, px, svg, text
from splitveil.report.charts.scale import fit
from splitveil.report.markup import Html, Phrase, attribute, plain


@dataclass(frozen=True)
class Dot:
    """One value on a row."""

    method: int
    colour: str
    value: float
    tip: Phrase


def row_chart(rows: list[tuple[str, list[Dot]]], title: Phrase, x_label: Phrase) -> Html:
    """Rows from top to bottom as given; a thin line joins the dots of a row."""
    box = Box(460, 40 + 22 * len(rows), left=108, top=6, bottom=42, right=16)
    values = [dot.value for _, dots in rows for dot in dots]
    x = fit(values, box.x0, box.x1, zero=True, pad=0.03)
    body = [columns(box, x)]
    for position, (name, dots) in enumerate(rows):
        at_y = box.y1 + 11 + 22 * position
        shown = name if len(name) <= 14 else name[:13] + "…"
        body.append(text(box.x0 - 10, at_y, plain(shown), "tick end", ' dy=".34em"'))
        ends = [x(dot.value) for dot in dots]
        if len(ends) > 1:
            body.append(f'<line class="link" x1="{px(min(ends))}" x2="{px(max(ends))}" y1="{at_y}" y2="{at_y}"/>')
        for dot in dots:
            body.append(
                f'<g class="spot {dot.colour}" data-m="{dot.method}" {attribute("data-tip", dot.tip)}>'
                f"{mark(dot.method, x(dot.value), at_y, 4.5)}</g>"
            )
    body.append(text((box.x0 + box.x1) / 2, box.height - 8, x_label, "name mid"))
    return svg(box, "".join(body), title, "rows")


@dataclass(frozen=True)
class Pin:
    """A named value on the scale at the top of the page."""

    value: float
    name: Phrase
    colour: str


# Where a pin's name may stand: height of the text, and the two ends of the line to it.
LANES = ((87.0, 62.0, 74.0), (30.0, 36.0, 49.0), (13.0, 19.0, 49.0))
LETTER = 11.5  # width of one bold letter on a phone, where names are 18 px high, so that they do not touch there either


def scale_chart(pins: list[Pin], title: Phrase, low: Phrase, high: Phrase) -> Html:
    """A line from 0 to 1 with named pins; each name takes the first lane in which it touches no other."""
    box = Box(560, 112, left=6, right=6)
    body = [f'<rect class="track" x="{box.x0}" y="51" width="{box.x1 - box.x0}" height="8" rx="4"/>']
    body.append(text(box.x0, 106, low, "tick"))
    body.append(text(box.x1, 106, high, "tick end"))
    taken: list[list[tuple[float, float]]] = [[] for _ in LANES]
    for pin in sorted(pins, key=lambda p: p.value):
        share = min(1.0, max(0.0, pin.value))
        at = box.x0 + share * (box.x1 - box.x0)
        width = LETTER * len(pin.name.en)
        # A name that would leave the drawing at one end is anchored there.
        inside = box.x0 <= at - width / 2 and at + width / 2 <= box.x1
        anchor, left = ("mid", at - width / 2) if inside else ("", at) if share < 0.5 else ("end", at - width)
        lane = next((i for i, used in enumerate(taken) if all(left > b or left + width < a for a, b in used)), 2)
        taken[lane].append((left, left + width))
        y, top, bottom = LANES[lane]
        if lane == 2 and any(a <= at <= b for a, b in taken[1]):
            top = LANES[1][1]  # below the name in the lane between, which the line would cross out
        body.append(f'<g class="pin {pin.colour}"><line x1="{px(at)}" x2="{px(at)}" y1="{px(top)}" y2="{px(bottom)}"/>')
        body.append(f'<circle cx="{px(at)}" cy="55" r="7"/>')
        body.append(text(at, y, pin.name, f"pin-name {anchor}") + "</g>")
    return svg(box, "".join(body), title, "scale")
