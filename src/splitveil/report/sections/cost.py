"""What the device sends and computes, and what the server computes."""

from __future__ import annotations

from splitveil.experiments.loose import items, number, table
from splitveil.report import numbers
from splitveil.report.markup import Content, Html, data_table, phrase, say, section
from splitveil.report.method import Method
from splitveil.report.sections.badge import named

COLUMNS = ("bytes_per_image", "edge_macs", "cloud_macs", "edge_params", "cloud_params")


def cost(methods: list[Method]) -> Html | None:
    rows: list[list[Content]] = []
    for method in methods:
        entry = next((found for run in method.runs if (found := table(run.result.get("cost")))), {})
        if not entry:
            continue
        values = {name: number(entry.get(name)) for name in COLUMNS}
        shape = " \N{MULTIPLICATION SIGN} ".join(
            f"{size:g}" for item in items(entry.get("feature_shape")) if (size := number(item)) is not None
        )
        rows.append(
            [
                named(method),
                shape or numbers.DASH,
                numbers.size(values["bytes_per_image"]),
                *(numbers.quantity(values[name]) for name in COLUMNS[1:]),
                _share(values["edge_macs"], values["cloud_macs"]),
            ]
        )
    if not rows:
        return None
    head: list[Content] = [
        say("word.method"),
        say("cost.shape"),
        *(say(f"cost.{name}") for name in COLUMNS),
        say("cost.share"),
    ]
    return section(
        "cost", say("cost.title"), say("cost.lead"), data_table(phrase("cost.title"), head, rows, css="numbers")
    )


def _share(edge: float | None, cloud: float | None) -> Content:
    """The device's part of the work, as a number and a bar."""
    if edge is None or cloud is None or edge < 0 or cloud < 0 or edge + cloud == 0:
        return numbers.DASH
    share = edge / (edge + cloud)
    return Html(
        f'{numbers.percent(share)}<svg class="share" viewBox="0 0 60 6" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="track" width="60" height="6" rx="3"/>'
        f'<rect class="fill" width="{60 * share:.1f}" height="6" rx="3"/></svg>'
    )
