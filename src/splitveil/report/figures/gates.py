"""Gates: by class, by place, and over training."""

from __future__ import annotations

from splitveil.report import numbers
from splitveil.report.charts.heat import Band, heat_chart
from splitveil.report.charts.lines import NO_METHOD, Curve
from splitveil.report.charts.tiles import Tile, tile_chart
from splitveil.report.explain_file import Explained, Gate, Row
from splitveil.report.figures.curves import by_epoch, curve_chart
from splitveil.report.figures.figure import Figure, Words, class_rows, make_figure
from splitveil.report.markup import Content

PER_LINE = 8  # small maps side by side


def gate(name: str, gate: Gate, explained: Explained, words: Words) -> Figure | None:
    shown = class_rows(gate.by_class, explained)
    if not shown:
        return None
    values, columns = [row for _, row in shown], len(gate.by_class[0])
    per_bin = -(-gate.channels // columns)
    x_label = words("axis.channel") if per_bin == 1 else words("axis.channel_bins", count=per_bin)
    bands = [Band(class_name) for class_name, _ in shown]
    chart = heat_chart(values, bands, words(f"figure.{name}"), x_label, words("axis.gate"), high=1.0)
    rows: list[list[Content]] = []
    for class_name, row in shown:
        known = [value for value in row if value is not None]
        rows.append([class_name, f"{sum(known) / len(known):.3f}" if known else numbers.DASH])
    return make_figure(name, words, chart, [words("word.class"), words("measure.mean")], rows)


def gate_places(name: str, gate: Gate, words: Words) -> Figure | None:
    if not gate.by_place:
        return None
    tiles = [Tile(words("tile.channel", number=number + 1), row) for number, row in enumerate(gate.by_place)]
    lines = [tiles[start : start + PER_LINE] for start in range(0, len(tiles), PER_LINE)]
    stem = f"{name}_places"
    title = words(f"figure.{stem}")
    chart = tile_chart(lines, gate.places, title, words("axis.gate"), row_names=[""] * len(lines), high=1.0)
    rows: list[list[Content]] = []
    for tile in tiles:
        known = [value for value in tile.values if value is not None]
        rows.append([tile.name, f"{sum(known) / len(known):.3f}" if known else numbers.DASH])
    return make_figure(stem, words, chart, [words("axis.channel"), words("measure.mean")], rows, wide=True)


def gate_training(explained: Explained, words: Words) -> Figure | None:
    shown = {name: row for name, row in explained.curves.items() if _acts(name, row)}
    if not shown:
        return None
    curves = [
        Curve(
            NO_METHOD,
            f"k{place}",
            words(f"legend.{name}"),
            tuple((epoch, value) for epoch, value in zip(explained.epochs, row, strict=True) if value is not None),
            shape=place,
        )
        for place, (name, row) in enumerate(shown.items())
    ]
    title = words("figure.gate_training")
    chart = curve_chart(curves, title, words, words("axis.gate"), unit=True)
    head: list[Content] = [words("word.epoch"), *(curve.name for curve in curves)]
    columns = tuple(zip(*shown.values(), strict=True))
    return make_figure("gate_training", words, chart, head, by_epoch(explained, columns))


def _acts(name: str, row: Row) -> bool:
    """A class gate that is switched off is 1 throughout; a shut-off that never happened is 0 throughout."""
    known = {value for value in row if value is not None}
    return bool(known) and not (name == "class_gate" and known == {1.0}) and not (name == "shut" and known == {0.0})
