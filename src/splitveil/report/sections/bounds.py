"""Proved bounds beside measured attacks, always with their assumptions (DESIGN 5: only a proved bound is certified)."""

from __future__ import annotations

from typing import Any

from splitveil.report import numbers
from splitveil.report.loose import number, table, text
from splitveil.report.markup import Content, Html, data_table, join, phrase, say, section, show
from splitveil.report.methods import Method, flatten
from splitveil.report.run import Run
from splitveil.report.sections.badge import named
from splitveil.report.verdict import assumptions, beaten_bounds, lower_limit


def bounds(methods: list[Method]) -> Html | None:
    blocks = [
        _block(method, run, name, entry)
        for method in methods
        for run in method.runs[:1]
        for name, entry in bounds_of(run)
    ]
    return section("bounds", say("bounds.title"), say("bounds.lead"), join(blocks)) if blocks else None


def bounds_of(run: Run) -> list[tuple[str, dict[str, Any]]]:
    """`bound` may be one bound, or a table of several."""
    bound = table(run.audit.bound)
    several = {name: table(value) for name, value in bound.items() if isinstance(value, dict)}
    own = {name: value for name, value in bound.items() if name not in several}
    named_bounds = list(several.items())
    return [*([(text(own.get("name")) or "bound", own)] if own else []), *named_bounds]


def _block(method: Method, run: Run, name: str, entry: dict[str, Any]) -> Html:
    rows: list[list[Content]] = []
    limit = lower_limit(entry)
    if limit is not None:
        rows.append([say("bounds.limit"), numbers.mse(limit)])
        if run.audit.leak.mse is not None:
            rows.append([say("bounds.measured"), numbers.mse(run.audit.leak.mse)])
    for key, value in flatten({k: v for k, v in entry.items() if k not in {"assumptions", "name"}}).items():
        found = number(entry.get(key))
        rows.append([key, numbers.plain(found) if found is not None else value])
    alarm = f'<p class="alarm">{say("bounds.beaten")}</p>' if (name in beaten_bounds(run.audit)) else ""
    told = assumptions(entry)
    lines = "".join(f"<li>{show(line)}</li>" for line in told)
    holds = f"<h4>{say('bounds.if')}</h4><ul>{lines}</ul>" if told else f"<p>{say('bounds.no_assumptions')}</p>"
    head: list[Content] = [say("bounds.quantity"), say("bounds.value")]
    return Html(
        f'<article class="bound"><h3>{named(method)} <span class="quiet">{show(name)}</span></h3>{alarm}'
        f"{data_table(phrase('bounds.title'), head, rows, css='numbers narrow')}{holds}</article>"
    )
