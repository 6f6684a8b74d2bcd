"""Proved bounds beside measured attacks, always with their assumptions (DESIGN 5: only a proved bound is certified)."""

from __future__ import annotations

from typing import Any

from splitveil.experiments.loose import number, table, text
from splitveil.report import numbers
from splitveil.report.markup import Content, Html, data_table, join, phrase, say, section, show
from splitveil.report.methods import Method, flatten
from splitveil.report.run import Run
from splitveil.report.sections.badge import named
from splitveil.report.verdict import LIMIT_KEYS, assumptions, beaten_bounds, lower_limit

MOST_COLUMNS = 6  # further quantities of a bound stay in audit.json


def bounds(methods: list[Method]) -> Html | None:
    """One table per kind of bound; several seeds of a method are shown by the run that leaks most."""
    kinds: dict[str, list[tuple[Method, Run, dict[str, Any]]]] = {}
    for method in methods:
        for name, entry in bounds_of(method.representative):
            kinds.setdefault(name, []).append((method, method.representative, entry))
    blocks = [_kind(name, entries) for name, entries in kinds.items()]
    return section("bounds", say("bounds.title"), say("bounds.lead"), join(blocks)) if blocks else None


def bounds_of(run: Run) -> list[tuple[str, dict[str, Any]]]:
    """`bound` may be one bound, or a table of several."""
    bound = table(run.audit.bound)
    several = [(name, table(value)) for name, value in bound.items() if isinstance(value, dict)]
    own = {name: value for name, value in bound.items() if not isinstance(value, dict)}
    return [*([(text(own.get("name")) or "bound", own)] if own else []), *several]


def _kind(name: str, entries: list[tuple[Method, Run, dict[str, Any]]]) -> Html:
    flats = [
        flatten({k: v for k, v in e.items() if k not in {"assumptions", "name", *LIMIT_KEYS}}) for _, _, e in entries
    ]
    keys = list(dict.fromkeys(key for flat in flats for key in flat))[:MOST_COLUMNS]
    rows: list[list[Content]] = []
    for (method, run, entry), flat in zip(entries, flats, strict=True):
        others = [_value(entry.get(key), flat.get(key)) for key in keys]
        rows.append([named(method), numbers.mse(lower_limit(entry)), numbers.mse(run.audit.leak.mse), *others])
    alarms = "".join(
        f'<p class="alarm">{named(method)} {say("bounds.beaten")}</p>'
        for method, run, _ in entries
        if name in beaten_bounds(run.audit)
    )
    told = list(dict.fromkeys(line for _, _, entry in entries for line in assumptions(entry)))
    lines = "".join(f"<li>{show(line)}</li>" for line in told)
    holds = f"<h4>{say('bounds.if')}</h4><ul>{lines}</ul>" if told else f"<p>{say('bounds.no_assumptions')}</p>"
    head: list[Content] = [say("word.method"), say("bounds.limit"), say("bounds.measured"), *keys]
    title = phrase("bounds.of", name=name)
    numbers_ = data_table(title, head, rows, css="numbers")
    return Html(f'<article class="bound"><h3>{show(name)}</h3>{alarms}{numbers_}{holds}</article>')


def _value(raw: object, written: str | None) -> str:
    found = number(raw)
    return numbers.plain(found) if found is not None else (written or numbers.DASH)
