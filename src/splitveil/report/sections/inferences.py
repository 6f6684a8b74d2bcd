"""What else leaks: attacks whose outcome is not a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from splitveil.experiments.loose import number, text
from splitveil.report import numbers
from splitveil.report.markup import Content, Html, data_table, join, phrase, say, show
from splitveil.report.methods import Method, mean
from splitveil.report.sections.badge import code, named
from splitveil.report.texts import TEXTS

COMMON = {"seconds", "threat_model", "summary"}


def inferences(methods: list[Method]) -> Html:
    """Attacks whose outcome is not a picture: every plain number they report, one column per method."""
    names = list(dict.fromkeys(name for method in methods for run in method.runs for name in run.audit.inference))
    parts = []
    for name in names:
        found = [
            (method, [_numbers(run.audit.inference[name]) for run in method.runs if name in run.audit.inference])
            for method in methods
        ]
        found = [(method, results) for method, results in found if results]
        keys = dict.fromkeys(key for _, results in found for result in results for key in result)
        rows: list[list[Content]] = [
            [code(key), *(numbers.plain(mean(result.get(key) for result in results)) for _, results in found)]
            for key in keys
        ]
        entry = next(run.audit.inference[name] for m in methods for run in m.runs if name in run.audit.inference)
        summary = text(entry.get("summary"))
        words = say(f"attack.{name}") if f"attack.{name}" in TEXTS else show(summary or "")
        head: list[Content] = [say("attacks.finding"), *(named(method, method.short) for method, _ in found)]
        table = data_table(phrase("attacks.of", name=name), head, rows, css="numbers narrow") if rows else ""
        parts.append(Html(f"<h4>{show(name)}</h4>" + (f"<p>{words}</p>" if words else "") + table))
    if not parts:
        return Html("")
    lead = f"<h3>{say('attacks.other')}</h3><p>{say('attacks.other_lead')}</p>"
    return Html(f'<article class="attack">{lead}{join(parts)}</article>')


def _numbers(entry: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Every number of a finding under its path: {"findings": {"class": {"rate": 0.5}}} -> {"class rate": 0.5}."""
    found: dict[str, float] = {}
    for key, value in entry.items():
        if key in COMMON:
            continue
        name = f"{prefix} {key}".strip() if key != "findings" else prefix
        if isinstance(value, Mapping):
            found |= _numbers(value, name)
        elif (plain := number(value)) is not None:
            found[name] = plain
    return found
