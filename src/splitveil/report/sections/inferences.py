"""What else leaks: attacks whose outcome is not a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from splitveil.experiments.loose import interval, number, table, text
from splitveil.report import numbers
from splitveil.report.markup import Content, Html, data_table, join, phrase, say, show
from splitveil.report.method import Method, mean
from splitveil.report.sections.badge import code, named
from splitveil.report.texts import TEXTS

COMMON = {"seconds", "threat_model", "summary"}
Entry = Mapping[str, Any]


def inferences(methods: list[Method]) -> Html:
    """A table per attack: a row for each thing it tried to find out, a column for each method."""
    names = list(dict.fromkeys(name for method in methods for run in method.runs for name in run.audit.inference))
    if not names:
        return Html("")
    lead = f"<h3>{say('attacks.other')}</h3><p>{say('attacks.other_lead')}</p>"
    return Html(f'<article class="attack">{lead}{join([_attack(name, methods) for name in names])}</article>')


def _attack(name: str, methods: list[Method]) -> Html:
    found = [
        (m, [run.audit.inference[name] for run in m.having(lambda run: name in run.audit.inference)]) for m in methods
    ]
    found = [(method, entries) for method, entries in found if entries]
    rows = _findings(found) or _details(found)
    summary = text(found[0][1][0].get("summary"))
    words = say(f"attack.{name}") if f"attack.{name}" in TEXTS else show(summary or "")
    head: list[Content] = [say("attacks.finding"), *(named(method, method.short) for method, _ in found)]
    body = data_table(phrase("attacks.of", name=name), head, rows, css="numbers narrow") if rows else ""
    return Html(f'<h4 class="inference">{show(name)}</h4>' + (f"<p>{words}</p>" if words else "") + body)


def _findings(found: list[tuple[Method, list[Entry]]]) -> list[list[Content]]:
    """As audits write them: findings by name, each an area under a curve, or a rate beside that of guessing."""
    keys = dict.fromkeys(key for _, entries in found for entry in entries for key in table(entry.get("findings")))
    return [
        [
            code(key),
            *(_cell([table(table(entry.get("findings")).get(key)) for entry in entries]) for _, entries in found),
        ]
        for key in keys
    ]


def _cell(results: list[dict[str, Any]]) -> Html:
    """One finding of one method, averaged over its seeds; the interval is that of a single seed."""
    area, rate = mean(number(one.get("auc")) for one in results), mean(number(one.get("rate")) for one in results)
    if area is None and rate is None:
        return Html(numbers.DASH)
    parts: list[Content] = []
    if area is not None:
        ends = interval(results[0].get("auc_ci95")) if len(results) == 1 else None
        parts.append(numbers.span(ends, lambda value: numbers.ssim(value, 3)))
        caught = mean(number(table(one.get("tpr_at_1_percent_fpr")).get("rate")) for one in results)
        parts.append(say("attacks.caught", value=numbers.percent(caught)) if caught is not None else "")
        value = f"AUC {area:.3f}"
    else:
        ends = interval(results[0].get("ci95")) if len(results) == 1 else None
        parts.append(numbers.span(ends, numbers.percent))
        guess = mean(number(one.get("guessing")) for one in results)
        parts.append(say("attacks.guessing", value=numbers.percent(guess)) if guess is not None else "")
        value = numbers.percent(rate)
    return Html(value + "".join(f'<span class="interval">{show(part)}</span>' for part in parts if part))


def _details(found: list[tuple[Method, list[Entry]]]) -> list[list[Content]]:
    """The numbers among the details of an attack that tells nothing else, as one of another package may."""
    keys = dict.fromkeys(key for _, entries in found for entry in entries for key in entry if key not in COMMON)
    return [
        [code(key), *(numbers.plain(mean(number(entry.get(key)) for entry in entries)) for _, entries in found)]
        for key in keys
        if any(number(entry.get(key)) is not None for _, entries in found for entry in entries)
    ]
