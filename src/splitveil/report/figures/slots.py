"""Attention and slots: which samples weigh, and what they are assigned to."""

from __future__ import annotations

from splitveil.report import numbers
from splitveil.report.charts.frame import COLOURS
from splitveil.report.charts.heat import Band, heat_chart
from splitveil.report.charts.lines import NO_METHOD, Curve
from splitveil.report.charts.strip import strip_chart
from splitveil.report.charts.tiles import Tile, tile_chart
from splitveil.report.explain_file import Explained, Row
from splitveil.report.figures.curves import by_epoch, curve_chart
from splitveil.report.figures.figure import MOST_CLASSES, Figure, Words, class_rows, make_figure
from splitveil.report.markup import Content, Phrase


def attention(explained: Explained, words: Words) -> Figure | None:
    groups: dict[int, list[float]] = {}
    for label, weight in zip(explained.labels, explained.attention, strict=False):
        if weight is not None and label >= 0:
            groups.setdefault(label, []).append(weight)
    chosen = sorted(groups)[:MOST_CLASSES]
    if not chosen:
        return None
    named = [(explained.class_name(label), groups[label]) for label in chosen]
    title = words("figure.attention")
    chart = strip_chart(named, title, words("axis.weight"), words("axis.even"))
    # (Σα)²/(M·Σα²): the share of the samples that count
    rows: list[list[Content]] = [
        [
            name,
            str(len(ws)),
            f"{max(ws):.2f}",
            numbers.percent(sum(ws) ** 2 / (len(ws) * sum(w * w for w in ws) or 1.0)),
        ]
        for name, ws in named
    ]
    head: list[Content] = [
        words("word.class"),
        words("measure.pictures"),
        words("measure.largest"),
        words("measure.effective"),
    ]
    return make_figure("attention", words, chart, head, rows)


def slot_mass(explained: Explained, words: Words) -> Figure | None:
    shown = class_rows(explained.slot_mass, explained)
    if not shown:
        return None
    values = [row for _, row in shown]
    bands = [Band(name) for name, _ in shown]
    high = max((value for row in values for value in row if value is not None), default=1.0) or 1.0
    chart = heat_chart(
        values, bands, words("figure.slot_mass"), words("axis.slot"), words("axis.share"), high=min(high, 1.0)
    )
    head: list[Content] = [words("word.class"), *(words("legend.slot", number=k + 1) for k in range(len(values[0])))]
    rows: list[list[Content]] = [[name, *(numbers.percent(value, 0) for value in row)] for name, row in shown]
    return make_figure("slot_mass", words, chart, head, rows)


def slot_training(explained: Explained, words: Words) -> Figure | None:
    if not explained.slot_share:
        return None
    curves = []
    for slot in range(len(explained.slot_share[0])):
        points = [(epoch, row[slot]) for epoch, row in zip(explained.epochs, explained.slot_share, strict=True)]
        known = tuple((epoch, value) for epoch, value in points if value is not None)
        name = words("legend.slot", number=slot + 1)
        curves.append(Curve(NO_METHOD, f"k{slot % COLOURS}", name, known, shape=slot))
    title = words("figure.slot_training")
    chart = curve_chart(curves, title, words, words("axis.share"), unit=False)
    head: list[Content] = [words("word.epoch"), *(curve.name for curve in curves)]
    return make_figure("slot_training", words, chart, head, by_epoch(explained, explained.slot_share))


def assignment(explained: Explained, words: Words) -> Figure | None:
    """Pictures sorted by class, and within a class by their slot."""
    pairs = [(label, row) for label, row in zip(explained.labels, explained.assignment, strict=False) if label >= 0]
    if not pairs:
        return None

    def best(row: Row) -> tuple[int, float]:
        value, slot = max((value or 0.0, -slot) for slot, value in enumerate(row))
        return -slot, -value

    pairs.sort(key=lambda pair: (pair[0], best(pair[1])))
    chosen = sorted({label for label, _ in pairs})[:MOST_CLASSES]
    pairs = [pair for pair in pairs if pair[0] in chosen]
    counts = {label: sum(1 for other, _ in pairs if other == label) for label in chosen}
    bands = [Band(explained.class_name(label), counts[label]) for label in chosen]
    title = words("figure.assignment")
    values = [row for _, row in pairs]
    chart = heat_chart(values, bands, title, words("axis.slot"), words("axis.responsibility"), high=1.0)
    head: list[Content] = [words("word.class"), words("measure.pictures")]
    rows: list[list[Content]] = [[explained.class_name(label), str(counts[label])] for label in chosen]
    return make_figure("assignment", words, chart, head, rows)


def looks(explained: Explained, words: Words) -> Figure | None:
    if not explained.looks:
        return None
    slots = min(len(look.slots) for look in explained.looks)
    lines = []
    for place, look in enumerate(explained.looks):
        heading = place == 0
        none = Phrase("", "")
        row = [Tile(words("tile.picture") if heading else none, png=look.png)]
        row += [
            Tile(words("tile.slot", number=slot + 1) if heading else none, look.slots[slot]) for slot in range(slots)
        ]
        lines.append(row)
    names = [explained.class_name(look.label) for look in explained.looks]
    title = words("figure.looks")
    high = max(
        (value for look in explained.looks for row in look.slots for value in row if value is not None), default=1
    )
    chart = tile_chart(lines, explained.places, title, words("axis.attention"), row_names=names, high=high or 1.0)
    head: list[Content] = [words("word.class")]
    return make_figure("looks", words, chart, head, [[name] for name in names], wide=True)
