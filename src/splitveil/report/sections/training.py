"""Training curves: small charts side by side, one per quantity, all runs in each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from splitveil.experiments.loose import number
from splitveil.report import numbers
from splitveil.report.charts.lines import Curve, line_chart
from splitveil.report.charts.scale import Point, robust_limit
from splitveil.report.markup import Content, Html, Phrase, data_table, details, join, phrase, plain, say, section, show
from splitveil.report.method import Method
from splitveil.report.sections.badge import named
from splitveil.report.texts import TEXTS

MAIN = ("test_accuracy", "accuracy", "task_loss", "rob_loss", "intra_mse", "effective_weight")
AXES = {"epoch", "seconds", "step", "time"}
COUNTED = "nonfinite"  # how the names of counted faults begin
MOST_CHARTS = 16
TABLE_ROWS = 20


def training(methods: list[Method]) -> Html | None:
    curves: dict[str, list[Curve]] = {}
    for method in methods:
        for run in method.runs:
            name = (
                method.label
                if len(method.runs) == 1
                else phrase("word.seed_of", name=method.label, seed=run.seed or "?")
            )
            for key, points in curves_of(run.metrics).items():
                curves.setdefault(key, []).append(Curve(method.number, method.colour, name, tuple(points)))
    if not curves:
        return None
    if curves.get("accuracy") == curves.get("test_accuracy"):  # the published protocol validates on test pictures
        curves.pop("accuracy", None)
    # counts of what never happened would take the place of curves
    others = sorted(key for key in curves if key not in MAIN and (_acts(curves[key]) or not key.startswith(COUNTED)))
    # Gates matter where they act; a gate that stayed at zero goes to the further curves.
    gates = [key for key in others if _is_gate(key) and _acts(curves[key])]
    chosen = [key for key in (*MAIN, *gates) if key in curves and _is_curve(key, curves)]
    rest = [key for key in (*MAIN, *others) if key in curves and key not in chosen]
    charts = join([_chart(key, curves[key], methods) for key in chosen[:MOST_CHARTS]])
    body = f'<div class="grid-charts">{charts}</div>'
    if rest:
        more = join([_chart(key, curves[key], methods) for key in rest[:MOST_CHARTS]])
        body += details(say("training.more"), Html(f'<div class="grid-charts">{more}</div>'))
    return section("training", say("training.title"), say("training.lead"), Html(body))


def curves_of(rows: tuple[Mapping[str, Any], ...]) -> dict[str, list[Point]]:
    """Every numeric key of the rows over the epoch; one level of nesting is opened ("gates": {"d": 0.3} -> gates.d)."""
    found: dict[str, list[Point]] = {}
    for position, row in enumerate(rows):
        epoch = number(row.get("epoch"))
        x = float(position + 1) if epoch is None else epoch
        for key, value in row.items():
            inner = {f"{key}.{name}": item for name, item in value.items()} if isinstance(value, dict) else {key: value}
            for name, item in inner.items():
                y = number(item)
                if y is not None and name not in AXES:
                    found.setdefault(name, []).append((x, y))
    return found


def _is_curve(key: str, curves: dict[str, list[Curve]]) -> bool:
    """A quantity measured once, in a training of many epochs, is a number rather than a curve."""
    longest = max(len(curve.points) for found in curves.values() for curve in found)
    return longest == 1 or any(len(curve.points) > 1 for curve in curves[key])


def _is_gate(key: str) -> bool:
    """Of a gate or of shut-off; a surro-gate is none."""
    return "gate" in key.replace("surrogate", "") or "shut" in key


def _acts(curves: list[Curve]) -> bool:
    return any(y != 0 for curve in curves for _, y in curve.points)


def _title(key: str) -> Phrase:
    return phrase(f"metric.{key}") if f"metric.{key}" in TEXTS else plain(key)


def _chart(key: str, curves: list[Curve], methods: list[Method]) -> Html:
    title = _title(key)
    # A run that diverged must not flatten all the others; what is cut is said, and the table has the numbers.
    limit = robust_limit([[y for _, y in curve.points] for curve in curves]) if key.endswith("loss") else None
    chart = line_chart(curves, title, phrase("word.epoch"), percent_y=key.endswith("accuracy"), limit_y=limit)
    cut = "" if limit is None else f' <span class="quiet">{say("training.cut", limit=numbers.plain(limit))}</span>'
    epochs = sorted({x for curve in curves for x, _ in curve.points})
    step = max(1, -(-len(epochs) // TABLE_ROWS))
    kept = sorted({*epochs[::step], epochs[-1]})
    values = [dict(curve.points) for curve in curves]
    rows: list[list[Content]] = [[f"{x:g}", *(numbers.plain(value.get(x)) for value in values)] for x in kept]
    head: list[Content] = [say("word.epoch"), *(named(methods[curve.method], curve.name) for curve in curves)]
    table = details(say("word.as_table"), data_table(title, head, rows, css="numbers"))
    return Html(f'<figure class="plot"><figcaption>{show(title)}{cut}</figcaption>{chart}{table}</figure>')
