"""From what is known about a run to its figures: a name, a chart, what it shows, and the same in numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from splitveil.report import numbers
from splitveil.report.charts.frame import COLOURS, Box
from splitveil.report.charts.heat import Band, heat_chart
from splitveil.report.charts.lines import NO_METHOD, Curve, line_chart
from splitveil.report.charts.strip import strip_chart
from splitveil.report.charts.tiles import Tile, tile_chart
from splitveil.report.explain_file import Explained, Gate, Matrix, Row
from splitveil.report.markup import Content, Html, Phrase
from splitveil.report.planes import plane_figures

Words = Callable[..., Phrase]
"""How a figure gets its texts: `markup.phrase` for the page, one language for a file."""

MOST_CLASSES = 20
PER_LINE = 8  # small maps side by side


@dataclass(frozen=True)
class Figure:
    """One figure. `name` is its file name without suffix; `table` (head, rows) tells its numbers."""

    name: str
    title: Phrase
    caption: Phrase
    chart: Html
    head: list[Content]
    rows: list[list[Content]]
    wide: bool = False


def figures(explained: Explained, words: Words) -> list[Figure]:
    """Every figure there is something to draw for, in reading order."""
    words = _with_unit(words, explained.unit)
    made = [
        _attention(explained, words),
        _slot_mass(explained, words),
        _slot_training(explained, words),
        _assignment(explained, words),
        _looks(explained, words),
        *(
            figure
            for name, gate in explained.gates.items()
            for figure in (_gate(name, gate, explained, words), _gate_places(name, gate, words))
        ),
        _gate_training(explained, words),
    ]
    found = [figure for figure in made if figure is not None]
    for name, chart, head, rows in plane_figures(explained, words):
        found.append(_figure(name, words, chart, head, rows, wide=len(explained.planes) > 1))
    return found


def _with_unit(words: Words, unit: str) -> Words:
    """The same texts, with the word for what samples are assigned to in the places {one}, {many} and {head}."""
    places = {form: words(f"unit.{unit}_{form}") for form in ("one", "many", "head")}
    return lambda key, **values: words(key, **places, **values)


def _figure(
    name: str, words: Words, chart: Html, head: list[Content], rows: list[list[Content]], *, wide: bool = False
) -> Figure:
    return Figure(name, words(f"figure.{name}"), words(f"caption.{name}"), chart, head, rows, wide)


def _attention(explained: Explained, words: Words) -> Figure | None:
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
    return _figure("attention", words, chart, head, rows)


def _slot_mass(explained: Explained, words: Words) -> Figure | None:
    shown = _classes(explained.slot_mass, explained)
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
    return _figure("slot_mass", words, chart, head, rows)


def _slot_training(explained: Explained, words: Words) -> Figure | None:
    if not explained.slot_share:
        return None
    curves = []
    for slot in range(len(explained.slot_share[0])):
        points = [(epoch, row[slot]) for epoch, row in zip(explained.epochs, explained.slot_share, strict=True)]
        known = tuple((epoch, value) for epoch, value in points if value is not None)
        name = words("legend.slot", number=slot + 1)
        curves.append(Curve(NO_METHOD, f"k{slot % COLOURS}", name, known, shape=slot))
    title = words("figure.slot_training")
    chart = _lines(curves, title, words, words("axis.share"), unit=False)
    head: list[Content] = [words("word.epoch"), *(curve.name for curve in curves)]
    return _figure("slot_training", words, chart, head, _by_epoch(explained, explained.slot_share))


def _gate_training(explained: Explained, words: Words) -> Figure | None:
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
    chart = _lines(curves, title, words, words("axis.gate"), unit=True)
    head: list[Content] = [words("word.epoch"), *(curve.name for curve in curves)]
    columns = tuple(zip(*shown.values(), strict=True))
    return _figure("gate_training", words, chart, head, _by_epoch(explained, columns))


def _acts(name: str, row: Row) -> bool:
    """A class gate that is switched off is 1 throughout; a shut-off that never happened is 0 throughout."""
    known = {value for value in row if value is not None}
    return bool(known) and not (name == "class_gate" and known == {1.0}) and not (name == "shut" and known == {0.0})


def _lines(curves: list[Curve], title: Phrase, words: Words, y_label: Phrase, *, unit: bool) -> Html:
    longest = max(len(curve.name.en) for curve in curves)
    box = Box(460, max(230, 76 + 19 * len(curves)), left=58, right=44 + round(6.6 * longest))
    return line_chart(curves, title, words("word.epoch"), y_label=y_label, unit_y=unit, legend=True, box=box)


def _by_epoch(explained: Explained, values: Matrix) -> list[list[Content]]:
    step = -(-len(explained.epochs) // 20)
    kept = list(range(0, len(explained.epochs), step))
    return [[f"{explained.epochs[place]:g}", *(numbers.plain(value) for value in values[place])] for place in kept]


def _assignment(explained: Explained, words: Words) -> Figure | None:
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
    return _figure("assignment", words, chart, head, rows)


def _gate(name: str, gate: Gate, explained: Explained, words: Words) -> Figure | None:
    shown = _classes(gate.by_class, explained)
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
    return _figure(name, words, chart, [words("word.class"), words("measure.mean")], rows)


def _gate_places(name: str, gate: Gate, words: Words) -> Figure | None:
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
    return _figure(stem, words, chart, [words("axis.channel"), words("measure.mean")], rows, wide=True)


def _looks(explained: Explained, words: Words) -> Figure | None:
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
    return _figure("looks", words, chart, head, [[name] for name in names], wide=True)


def _classes(matrix: Matrix, explained: Explained) -> list[tuple[str, Row]]:
    """Named rows of a class by class table; many classes are cut to those in the batch, then to the first twenty."""
    rows = [(explained.class_name(number), row) for number, row in enumerate(matrix)]
    if len(rows) > MOST_CLASSES:
        rows = [(name, row) for name, row in rows if any(value is not None for value in row)]
    return rows[:MOST_CLASSES] if any(value is not None for _, row in rows for value in row) else []
