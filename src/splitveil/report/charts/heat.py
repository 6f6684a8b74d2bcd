"""Heat maps: one hue whose strength is the value, so that they read in grey and by colour-blind eyes too."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from splitveil.report.charts.frame import Box, px, svg, text
from splitveil.report.markup import Html, Phrase, attribute, plain

Values = Sequence[Sequence[float | None]]

LEVELS = 20  # shades; more cannot be told apart
ROW, SMALL_ROW = 17.0, 3.2  # height of a row that has a name, and of one among many of the same name
LONGEST_NAME = 13


@dataclass(frozen=True)
class Band:
    """Neighbouring rows under one name."""

    name: str
    rows: int = 1


def heat_chart(
    values: Values, bands: list[Band], title: Phrase, x_label: Phrase, value_label: Phrase, *, high: float
) -> Html:
    """Rows of `values` (0 to `high`; None is left grey), named in bands; columns are counted from 1."""
    thin = len(values) > len(bands)
    heights = [max(ROW * 0.8, SMALL_ROW * band.rows) if thin else ROW for band in bands]
    box = Box(460, round(sum(heights)) + 74, left=104, right=64, top=22, bottom=52)
    columns = len(values[0])
    width = (box.x1 - box.x0) / columns
    body = [text(box.x1 + 10, 12, value_label, "tick end")]
    top, start = float(box.y1), 0
    for band, height in zip(bands, heights, strict=True):
        rows = values[start : start + band.rows]
        body.append(cells(rows, box.x0, top, width, height / max(band.rows, 1), high))
        body.append(text(box.x0 - 8, top + height / 2, short(band.name), "tick end", ' dy=".34em"'))
        if start:
            body.append(f'<line class="rule" x1="{box.x0}" x2="{box.x1}" y1="{px(top)}" y2="{px(top)}"/>')
        top, start = top + height, start + band.rows
    body.append(frame(box.x0, box.y1, box.x1 - box.x0, top - box.y1))
    step = 1 if columns <= 16 else 8 if columns <= 64 else 16
    for column in range(0, columns, step):
        at = box.x0 + (column + 0.5) * width
        body.append(f'<text class="tick mid" x="{px(at)}" y="{px(top + 15)}">{column + 1}</text>')
    body.append(text((box.x0 + box.x1) / 2, top + 34, x_label, "name mid"))
    body.append(colour_key(box.x1 + 14, box.y1, min(110.0, top - box.y1), high))
    if not thin:  # the script says what is under the pointer
        names = "|".join(band.name.replace("|", "/") for band in bands)
        written = " ".join("-" if v is None else f"{v:.3g}" for row in values for v in row)
        body.append(
            f'<rect class="hit" x="{box.x0}" y="{box.y1}" width="{px(box.x1 - box.x0)}" height="{px(top - box.y1)}" '
            f'data-grid="{columns}" data-rows="{html.escape(names)}" data-v="{written}" '
            f"{attribute('data-name', x_label)}/>"
        )
    return svg(box, "".join(body), title, "heat")


def cells(values: Values, x: float, y: float, width: float, height: float, high: float) -> str:
    """The cells of a grid, all of one shade in one path; what is not known is grey."""
    shades: dict[int | None, list[str]] = {}
    for row, line in enumerate(values):
        for column, value in enumerate(line):
            shade = None if value is None else round(LEVELS * min(1.0, max(0.0, value / high)))
            if shade != 0:
                at = f"M{px(x + column * width)} {px(y + row * height)}"
                shades.setdefault(shade, []).append(f"{at}h{width:.2f}v{height:.2f}h-{width:.2f}z")
    parts = []
    for shade, found in shades.items():
        look = 'class="void"' if shade is None else f'class="cell" fill-opacity="{shade / LEVELS:g}"'
        parts.append(f'<path {look} d="{"".join(found)}"/>')
    return "".join(parts)


def frame(x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="frame" x="{px(x)}" y="{px(y)}" width="{px(width)}" height="{px(height)}"/>'


def colour_key(x: float, y: float, height: float, high: float) -> str:
    """The scale from 0 to `high` as a column of shades."""
    step = height / LEVELS
    shades = [[(LEVELS - place) / LEVELS] for place in range(LEVELS)]
    labels = "".join(
        f'<text class="tick" x="{px(x + 16)}" y="{px(y + height * (1 - share))}" dy=".34em">{share * high:.2g}</text>'
        for share in (0.0, 0.5, 1.0)
    )
    return cells(shades, x, y, 11, step, 1.0) + frame(x, y, 11, height) + labels


def short(name: Phrase | str) -> Phrase:
    """A name that fits beside a chart."""
    english, chinese = (
        word if len(word) <= LONGEST_NAME else word[: LONGEST_NAME - 1] + "…"
        for word in (plain(name).en, plain(name).zh)
    )
    return Phrase(english, chinese)
