"""What all charts share: the SVG element, the grid, the axes and their labels."""

from __future__ import annotations

from dataclasses import dataclass

from splitveil.report.charts.scale import Scale, tick_label
from splitveil.report.markup import Html, Phrase, attribute, show


@dataclass(frozen=True)
class Box:
    """Size of the drawing and the margins around the plot area, in user units."""

    width: int
    height: int
    left: int = 52
    right: int = 14
    top: int = 14
    bottom: int = 44

    @property
    def x0(self) -> int:
        return self.left

    @property
    def x1(self) -> int:
        return self.width - self.right

    @property
    def y0(self) -> int:
        return self.height - self.bottom

    @property
    def y1(self) -> int:
        return self.top


def px(value: float) -> str:
    """A coordinate with one decimal: a tenth of a pixel is below what anyone sees."""
    return f"{value:.1f}".removesuffix(".0")


def svg(box: Box, body: str, label: Phrase, css: str, extra: str = "", role: str = "img") -> Html:
    """The chart element; `label` is what a screen reader says, the data table beside the chart says the rest.

    `role` is "group" where marks inside the chart take the keyboard focus: the inside of an "img" is not announced.
    """
    return Html(
        f'<svg class="chart {css}" viewBox="0 0 {box.width} {box.height}" role="{role}" '
        f"{attribute('aria-label', label)}{extra}>{body}</svg>"
    )


def axes(
    box: Box,
    x: Scale,
    y: Scale,
    x_label: Phrase,
    y_label: Phrase,
    *,
    percent_y: bool = False,
    whole_x: bool = False,
) -> str:
    """Horizontal grid lines, tick labels, axis titles."""
    parts = []
    y_ticks = y.ticks(6)
    y_step = y_ticks[1] - y_ticks[0] if len(y_ticks) > 1 else 1.0
    for tick in y_ticks:
        at = px(y(tick))
        written = tick_label(tick * 100, y_step * 100) + " %" if percent_y else tick_label(tick, y_step)
        parts.append(f'<line class="grid" x1="{box.x0}" x2="{box.x1}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text class="tick end" x="{box.x0 - 7}" y="{at}" dy=".34em">{written}</text>')
    x_ticks = x.ticks(5, whole=whole_x)
    x_step = x_ticks[1] - x_ticks[0] if len(x_ticks) > 1 else 1.0
    for tick in x_ticks:
        at = px(x(tick))
        parts.append(f'<line class="grid" x1="{at}" x2="{at}" y1="{box.y0}" y2="{box.y0 + 4}"/>')
        parts.append(f'<text class="tick mid" x="{at}" y="{box.y0 + 17}">{x.label(tick, x_step)}</text>')
    parts.append(f'<line class="axis" x1="{box.x0}" x2="{box.x1}" y1="{box.y0}" y2="{box.y0}"/>')
    parts.append(text((box.x0 + box.x1) / 2, box.height - 8, x_label, "name mid"))
    if y_label.en:
        parts.append(text(0, 0, y_label, "name mid", f' transform="translate(11 {(box.y0 + box.y1) / 2}) rotate(-90)"'))
    return "".join(parts)


def columns(box: Box, x: Scale) -> str:
    """Vertical grid lines through the whole plot area, with their tick labels below."""
    ticks = x.ticks(5)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
    parts = []
    for tick in ticks:
        at = px(x(tick))
        parts.append(f'<line class="grid" x1="{at}" x2="{at}" y1="{box.y1}" y2="{box.y0}"/>')
        parts.append(f'<text class="tick mid" x="{at}" y="{box.y0 + 15}">{tick_label(tick, step)}</text>')
    return "".join(parts)


def text(x: float, y: float, content: Phrase, css: str, extra: str = "") -> str:
    return f'<text class="{css}" x="{px(x)}" y="{px(y)}"{extra}>{show(content, "tspan")}</text>'


COLOURS = 10  # of classes and slots: k0 to k9 in the style sheets
MARKS = ("circle", "square", "triangle", "diamond")


def mark(kind: int, x: float, y: float, radius: float) -> str:
    """A marker whose shape tells methods apart without colour."""
    # Colours repeat after eight methods; the shift makes sure that colour and shape do not repeat together.
    shape = MARKS[(kind + kind // 8) % len(MARKS)]
    if shape == "circle":
        return f'<circle cx="{px(x)}" cy="{px(y)}" r="{radius}"/>'
    if shape == "square":
        side = 1.8 * radius
        return f'<rect x="{px(x - side / 2)}" y="{px(y - side / 2)}" width="{px(side)}" height="{px(side)}" rx="1"/>'
    r = 1.25 * radius
    if shape == "triangle":
        corners = [(x, y - r), (x + r, y + 0.8 * r), (x - r, y + 0.8 * r)]
    else:
        corners = [(x, y - r), (x + r, y), (x, y + r), (x - r, y)]
    return '<polygon points="' + " ".join(f"{px(a)},{px(b)}" for a, b in corners) + '"/>'
