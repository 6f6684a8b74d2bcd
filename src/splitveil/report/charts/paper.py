"""Privacy against accuracy as a figure for a paper: one SVG file that stands alone, black on white, no script."""

from __future__ import annotations

import html
import math
import textwrap

from splitveil.experiments.compare.cells import Group
from splitveil.experiments.compare.comparison import Comparison, Table
from splitveil.experiments.compare.curve import Curve
from splitveil.experiments.compare.labels import is_defended
from splitveil.experiments.compare.measures import Measure
from splitveil.experiments.compare.pairs import method_pairs
from splitveil.experiments.compare.prose import attack_words
from splitveil.experiments.compare.summaries import Summary
from splitveil.report.charts.frame import Box, mark, px
from splitveil.report.charts.scale import Scale, fit, tick_label

# Okabe and Ito's colours, dark enough on white for thin lines; told apart by readers with any colour vision.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#a07000", "#7f5fb0", "#882255")
PLAIN_COLOUR = "#000000"  # of what the others are held against, the same in every figure
STYLE = (
    "text{font:12px Helvetica,Arial,sans-serif;fill:#000}.name{font-weight:bold}.mid{text-anchor:middle}"
    ".end{text-anchor:end}.grid{stroke:#ddd}.axis{stroke:#000;fill:none}.bar{fill:none;stroke-width:1}"
    ".curve{fill:none;stroke-width:1.5}.floor{stroke:#666;stroke-dasharray:4 3}"
)
TIP = (
    "<style>.link{stroke:#666;marker-end:url(#tip)}</style>"
    '<defs><marker id="tip" viewBox="0 0 6 6" refX="11" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
    '<path d="M0 0L6 3L0 6z" fill="#666"/></marker></defs>'
)
PANEL, LEGEND_ROW = (460, 340), 17
TITLE_LETTERS, TITLE_ROW = 56, 15  # as many bold letters as a panel is surely wide enough for
LEGEND_LETTERS = 54  # beside a mark; longer words are set smaller
FAR = 2.0  # a floor further away than this, in largest values, would leave the marks no room: it is named at the edge


def frontier_figure(comparison: Comparison) -> str:
    """One panel per table of the comparison that has attacks, two beside each other, each with its own legend."""
    tables = [table for table in comparison.tables if _drawn(table, comparison.view.measure)]
    columns = min(2, max(1, len(tables)))
    panels, tops = [], [0]
    for start in range(0, len(tables), columns):
        row = tables[start : start + columns]
        for column, table in enumerate(row):
            pairs = method_pairs(table.group, comparison.view) if comparison.view.pairs else []
            panel = _panel(table, table.group.measure(comparison.view.measure), pairs)
            panels.append(f'<g transform="translate({column * PANEL[0]} {tops[-1]})">{panel}</g>')
        tops.append(tops[-1] + PANEL[1] + 14 + LEGEND_ROW * (1 + max(len(table.group.methods) for table in row)))
    width, height = columns * PANEL[0], max(tops[-1], 40)
    body = "".join(panels) or '<text x="10" y="24">No attacked runs to draw.</text>'
    style = f"<style>{STYLE}</style>" + (TIP if 'class="link"' in body else "")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        f'{style}<rect width="100%" height="100%" fill="#fff"/>{body}</svg>\n'
    )


def _drawn(table: Table, measure: str) -> list[Summary]:
    return [one for one in table.summaries if one.accuracy is not None and one.get(table.attack, measure) is not None]


def _apart(shown: list[Summary]) -> dict[str, list[Summary]]:
    """Methods far below all others in accuracy (collapsed, say): drawn, they would leave the others no room.

    Few cells (at most a fifth), below a gap that is more than half of the whole range.
    """
    found = sorted((one.accuracy.mean, one.cell.method) for one in shown if one.accuracy is not None)
    for count in range(1, len(found) // 5 + 1):
        low = {method for _, method in found[:count]}
        gap = found[count][0] - found[count - 1][0]
        if gap > 0.5 * (found[-1][0] - found[0][0]) and low.isdisjoint(method for _, method in found[count:]):
            return {method: [one for one in shown if one.cell.method == method] for method in low}
    return {}


def _below(mine: list[Summary], attack: str, measure: Measure) -> str:
    places = [
        f"{100 * one.accuracy.mean:.1f} % at {measure.write(leak.mean)}"
        for one in mine
        if one.accuracy is not None and (leak := one.get(attack, measure.name)) is not None
    ]
    return f", below the picture: {', '.join(places)}"


def _panel(table: Table, measure: Measure, pairs: list[tuple[str, str]]) -> str:
    setting = table.group.setting
    words = f"{setting.data}, {setting.mode.replace('_', '-')}, {attack_words(table.attack)}"
    title = textwrap.wrap(words, TITLE_LETTERS) or [""]
    box = Box(*PANEL, left=62, top=30 + TITLE_ROW * (len(title) - 1), bottom=46, right=16)
    shown = _drawn(table, measure.name)
    apart = _apart(shown)
    shown = [one for one in shown if one.cell.method not in apart]
    xs: list[float] = []
    ys: list[float] = []
    for one in shown:
        for found, values in ((one.get(table.attack, measure.name), xs), (one.accuracy, ys)):
            if found is not None:
                values += [found.mean, *(_bar(found.mean, found.sd) or ())]
    floor = table.group.floors.get("mean_image") if measure.name == "mse" else None
    near = floor is not None and floor <= FAR * max(xs)
    x = fit(xs + ([floor] if floor is not None and near else []), box.x0, box.x1)
    if measure.sign < 0:  # more private is always to the right
        x = Scale(x.low, x.high, box.x1, box.x0)
    y = fit(ys, box.y0, box.y1, pad=0.1)
    parts = [_axes(box, x, y, measure, title)]
    if floor is not None:
        at = px(x(floor)) if near else px(box.x1)
        words = "mean picture" if near else f"mean picture at {measure.write(floor)} \N{RIGHTWARDS ARROW}"
        parts.append(f'<text class="end" x="{at}" dx="-5" y="{box.y0 - 8}">{words}</text>')
        parts += [f'<line class="floor" x1="{at}" x2="{at}" y1="{box.y1}" y2="{box.y0}"/>'] if near else []
    links = _links(shown, pairs, table.attack, measure, x, y)
    parts += links
    curves = table.equal.curves if table.equal else {}
    colours = _colours(table.group)
    for place, method in enumerate(sorted(table.group.methods)):
        colour = colours[method]
        mine = [one for one in shown if one.cell.method == method]
        marks = [_cell(one, table.attack, measure, place, x, y) for one in mine]
        row = box.height + 8 + LEGEND_ROW * place
        parts.append(f'<g stroke="{colour}" fill="{colour}">')
        parts += [_curve(curves[method], x, y)] if method in curves else []
        parts += [*marks, mark(place, box.x0 + 6, row, 4.5), "</g>"]
        words = _below(apart[method], table.attack, measure) if method in apart else ""
        legend = _legend(method, apart.get(method, mine)) + words
        size = f' style="font-size:{12 * LEGEND_LETTERS / len(legend):.1f}px"' if len(legend) > LEGEND_LETTERS else ""
        parts.append(f'<text x="{box.x0 + 18}" y="{row + 4}"{size}>{html.escape(legend)}</text>')
    bars = any(one.accuracy and one.accuracy.sd is not None for one in shown)
    words = "Bars: standard deviation over seeds. " * bars + "Arrows: tested pairs." * bool(links)  # one row of a panel
    last = box.height + 12 + LEGEND_ROW * len(table.group.methods)
    parts += [f'<text x="{box.x0}" y="{last}">{words.strip()}</text>'] if words else []
    return "".join(parts)


def _colours(group: Group) -> dict[str, str]:
    """Black for the one method that has noise alone, if there is one; the others take turns."""
    methods = sorted(group.methods)
    plain = [method for method in methods if not any(is_defended(cell.settings) for cell in group.methods[method])]
    others = [method for method in methods if [method] != plain]
    colours = {method: COLOURS[place % len(COLOURS)] for place, method in enumerate(others)}
    return colours | ({plain[0]: PLAIN_COLOUR} if len(plain) == 1 else {})


def _links(
    shown: list[Summary], pairs: list[tuple[str, str]], attack: str, measure: Measure, x: Scale, y: Scale
) -> list[str]:
    """An arrow from the second method of a pair to the first, where each is a single mark; curves need none."""
    lines = []
    for first, second in pairs:
        ends = [[one for one in shown if one.cell.method == method] for method in (second, first)]
        places = [
            (px(x(leak.mean)), px(y(one.accuracy.mean)))
            for mine in ends
            for one in mine
            if one.accuracy is not None and (leak := one.get(attack, measure.name)) is not None
        ]
        if [len(mine) for mine in ends] == [1, 1] and len(places) == 2 and places[0] != places[1]:
            (x1, y1), (x2, y2) = places
            lines.append(f'<line class="link" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>')
    return lines


def _legend(method: str, mine: list[Summary]) -> str:
    seeds = sorted({len(one.cell.runs) for one in mine})
    if not seeds:
        return f"{method} (not attacked)"
    counts = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return f"{method} ({counts} seed{'' if seeds == [1] else 's'})"


def _bar(mean: float, sd: float | None) -> tuple[float, float] | None:
    return None if sd is None else (mean - sd, mean + sd)


def _cell(one: Summary, attack: str, measure: Measure, kind: int, x: Scale, y: Scale) -> str:
    """The mean, with one standard deviation over seeds to each side."""
    leak, accuracy = one.get(attack, measure.name), one.accuracy
    if leak is None or accuracy is None:
        return ""
    at_x, at_y = x(leak.mean), y(accuracy.mean)
    parts = [mark(kind, at_x, at_y, 4.5)]
    if (bar := _bar(leak.mean, leak.sd)) is not None:
        parts.append(f'<path class="bar" d="M{px(x(bar[0]))} {px(at_y)}H{px(x(bar[1]))}"/>')
    if (bar := _bar(accuracy.mean, accuracy.sd)) is not None:
        parts.append(f'<path class="bar" d="M{px(at_x)} {px(y(bar[0]))}V{px(y(bar[1]))}"/>')
    return f"<g><title>{html.escape(one.cell.name)}</title>{''.join(parts)}</g>"


def _curve(curve: Curve, x: Scale, y: Scale) -> str:
    """The line along which the comparison interpolates, its flat part included."""
    places = [(point.mean_value, point.mean_accuracy) for point in curve.points]
    if curve.low < places[0][1] and not math.isclose(curve.low, places[0][1]):
        places.insert(0, (places[0][0], curve.low))
    line = " ".join(f"{px(x(a))},{px(y(b))}" for a, b in places)
    return f'<polyline class="curve" points="{line}"/>'


def _axes(box: Box, x: Scale, y: Scale, measure: Measure, title: list[str]) -> str:
    parts = [
        f'<text class="name" x="{box.x0}" y="{18 + TITLE_ROW * row}">{html.escape(line)}</text>'
        for row, line in enumerate(title)
    ]
    for scale, upright in ((x, False), (y, True)):
        ticks = scale.ticks(5)
        step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
        for tick in ticks:
            at = px(scale(tick))
            factor = 100 if upright or measure.percent else 1
            written = tick_label(factor * tick, factor * step)
            if upright:
                parts.append(f'<line class="grid" x1="{box.x0}" x2="{box.x1}" y1="{at}" y2="{at}"/>')
                parts.append(f'<text class="end" x="{box.x0 - 7}" y="{at}" dy=".34em">{written}</text>')
            else:
                parts.append(f'<line class="axis" x1="{at}" x2="{at}" y1="{box.y0}" y2="{box.y0 + 4}"/>')
                parts.append(f'<text class="mid" x="{at}" y="{box.y0 + 18}">{written}</text>')
    parts.append(f'<path class="axis" d="M{box.x0} {box.y1}V{box.y0}H{box.x1}"/>')
    middle = (box.x0 + box.x1) / 2
    told = f"{html.escape(measure.title)} (more private to the right)"
    parts.append(f'<text class="mid" x="{middle}" y="{box.y0 + 36}">{told}</text>')
    turned = f"translate(14 {(box.y0 + box.y1) / 2}) rotate(-90)"
    parts.append(f'<text class="mid" transform="{turned}">accuracy %</text>')
    return "".join(parts)
