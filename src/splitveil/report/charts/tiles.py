"""Many small maps side by side: a channel's places, or where each slot looks in a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from splitveil.report.charts.frame import Box, px, svg, text
from splitveil.report.charts.heat import cells, colour_key, frame, short
from splitveil.report.markup import Html, Phrase

SIDE, GAP = 58.0, 8.0


@dataclass(frozen=True)
class Tile:
    """A map of `shape` (rows, columns), or a picture."""

    name: Phrase
    values: Sequence[float | None] = ()
    png: str = ""


def tile_chart(
    rows: list[list[Tile]],
    shape: tuple[int, int],
    title: Phrase,
    value_label: Phrase,
    *,
    row_names: list[str],
    high: float,
) -> Html:
    """Rows of tiles (values from 0 to `high`) under their names; a row may have a name of its own at its left."""
    height, width = shape
    unit = SIDE / max(height, width)
    left = 84 if any(row_names) else 6
    most = max(len(row) for row in rows)
    named = [any(tile.name.en for tile in row) for row in rows]
    tops: list[float] = []
    at = 22.0
    for has_name in named:
        at += 17 if has_name else 0
        tops.append(at)
        at += unit * height + GAP
    across = left + most * (SIDE + GAP)
    box = Box(round(across + 62), round(max(at, 120)) + 6, left=left)
    body = [text(across + 52, 12, value_label, "tick end")]
    for row, top, name in zip(rows, tops, row_names, strict=True):
        if name:
            body.append(text(left - 10, top + unit * height / 2, short(name), "tick end", ' dy=".34em"'))
        for place, tile in enumerate(row):
            x = left + place * (SIDE + GAP) + (SIDE - unit * width) / 2
            if tile.name.en:
                body.append(text(x + unit * width / 2, top - 5, tile.name, "tick mid"))
            body.append(_tile(tile, x, top, unit, shape, high))
    body.append(colour_key(across + 6, 22, min(110.0, box.height - 34), high))
    return svg(box, "".join(body), title, "tiles")


def _tile(tile: Tile, x: float, y: float, unit: float, shape: tuple[int, int], high: float) -> str:
    height, width = shape
    around = frame(x, y, unit * width, unit * height)
    if tile.png:
        return (
            f'<image x="{px(x)}" y="{px(y)}" width="{px(unit * width)}" height="{px(unit * height)}" '
            f'image-rendering="pixelated" href="data:image/png;base64,{tile.png}"/>{around}'
        )
    lines = [tile.values[row * width : (row + 1) * width] for row in range(height)]
    return cells(lines, x, y, unit, unit, high) + around
