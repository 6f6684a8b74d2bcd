"""Privacy against accuracy, once by MSE and once by SSIM."""

from __future__ import annotations

from splitveil.report import numbers
from splitveil.report.audit_file import Scores
from splitveil.report.charts.frontier import Floor, Spot, frontier_chart
from splitveil.report.markup import Content, Html, Phrase, data_table, details, phrase, say, section
from splitveil.report.method import Method
from splitveil.report.run import Run
from splitveil.report.sections.badge import named


def frontier(methods: list[Method]) -> Html:
    charts = [(metric, chart) for metric in ("mse", "ssim") if (chart := _chart(methods, metric))]
    if not charts:
        return section("frontier", say("frontier.title"), None, Html(f'<p class="empty">{say("frontier.empty")}</p>'))
    tabs = "".join(
        f'<button type="button" data-pane="{metric}" aria-pressed="false">{metric.upper()}</button>'
        for metric, _ in charts
    )
    panes = "".join(f'<div class="pane" data-pane-of="{metric}">{chart}</div>' for metric, chart in charts)
    switch = f'<div class="switch" role="group" hidden>{tabs}</div>' if len(charts) > 1 else ""
    body = f'<div class="panes">{switch}{panes}</div>{_table(methods)}'
    return section("frontier", say("frontier.title"), say("frontier.lead"), Html(body))


def _chart(methods: list[Method], metric: str) -> Html | None:
    spots = []
    for method in methods:
        x, y = getattr(method.leak, metric), method.accuracy
        if x is None or y is None:
            continue
        spots.append(_spot(method, metric, x, y))
        if len(method.counted) > 1:
            spots += [spot for run in method.counted if (spot := _seed(method, run, metric)) is not None]
    if not spots:
        return None
    floors = []
    for name in ("mean_image", "class_mean"):
        values = [getattr(run.audit.floors.get(name, Scores()), metric) for m in methods for run in m.runs]
        known = [value for value in values if value is not None]
        if known:
            floors.append(Floor(sum(known) / len(known), phrase(f"floor.{name}")))
    return frontier_chart(
        spots,
        floors,
        phrase("frontier.aria", metric=metric.upper(), count=len(methods)),
        phrase(f"frontier.x_{metric}"),
        phrase("word.accuracy"),
        phrase("frontier.better"),
        flip=metric == "ssim",
    )


def _spot(method: Method, metric: str, x: float, y: float) -> Spot:
    """Error bars are 95 % intervals: over seeds where there are several, the audit's own for a single run."""
    alone = method.leak.mse_ci if metric == "mse" else method.leak.ssim_ci
    # An interval of two or three seeds can be wider than anything the quantity can be.
    x_range = _within(method.interval(lambda run: getattr(run.audit.leak, metric)), 0.0, max(1.0, x)) or alone
    y_range = _within(method.interval(method.accuracy_of), 0.0, 1.0)
    return Spot(
        method.number,
        method.colour,
        method.letter,
        x,
        y,
        _tip(method.label, y, metric, x),
        x_range,
        y_range,
    )


def _within(ends: tuple[float, float] | None, low: float, high: float) -> tuple[float, float] | None:
    return None if ends is None else (max(low, ends[0]), min(high, ends[1]))


def _seed(method: Method, run: Run, metric: str) -> Spot | None:
    x, y = getattr(run.audit.leak, metric), run.accuracy
    if x is None or y is None:
        return None
    name = phrase("word.seed_of", name=method.label, seed=run.seed or "?")
    return Spot(method.number, method.colour, "", x, y, _tip(name, y, metric, x), faint=True)


def _tip(name: Phrase, accuracy: float, metric: str, value: float) -> Phrase:
    written = numbers.mse(value) if metric == "mse" else numbers.ssim(value, 3)
    return phrase("frontier.tip", name=name, accuracy=numbers.percent(accuracy), metric=metric.upper(), value=written)


def _accuracy(method: Method) -> Html:
    value = numbers.percent(method.accuracy)
    return Html(f'{value}<span class="interval">{say("tile.auditors")}</span>' if method.auditors_accuracy else value)


def _table(methods: list[Method]) -> Html:
    rows: list[list[Content]] = [
        [
            named(method),
            _accuracy(method),
            numbers.mse(method.leak.mse),
            numbers.ssim(method.leak.ssim, 3),
            str(len(method.counted)),
        ]
        for method in methods
    ]
    head: list[Content] = [say("word.method"), say("word.accuracy"), "MSE", "SSIM", say("word.seeds")]
    return details(say("word.as_table"), data_table(phrase("frontier.title"), head, rows))
