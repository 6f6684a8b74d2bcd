"""Proved bounds beside measured attacks, always with whom they hold for (DESIGN 5: only a proof certifies)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from splitveil.experiments.loose import items, number, table, text
from splitveil.report import numbers
from splitveil.report.markup import Content, Html, data_table, join, phrase, say, section, show, told
from splitveil.report.method import Method
from splitveil.report.run import Run
from splitveil.report.sections.badge import code, named
from splitveil.report.texts import TEXTS

NOT_SHOWN = {"mse", "num_images"}  # the error has a column of its own
MOST_COLUMNS = 6  # further quantities of a bound stay in audit.json


@dataclass(frozen=True)
class Line:
    """One bound of one run, for so many transmissions of a picture (None: the file does not say)."""

    method: Method
    run: Run
    transmissions: str | None
    entry: dict[str, Any]

    @property
    def limit(self) -> float | None:
        """The MSE below which no attack should come."""
        return number(self.entry.get("mse"))

    @property
    def measured(self) -> float | None:
        """The error the attacks reached; against a bound for one transmission, those count that saw only one."""
        audit = self.run.audit
        once = self.transmissions == "1" and audit.worst_once.known
        return (audit.worst_once if once else audit.leak).mse


def bounds(methods: list[Method]) -> Html | None:
    """One table per kind of bound; several seeds of a method are shown by the run that leaks most."""
    kinds: dict[str, list[Line]] = {}
    reasons: list[Html] = []
    for method in methods:
        run = method.representative
        for name, entry in bounds_of(run):
            kinds.setdefault(name, []).extend(_lines(method, run, entry))
        reason = text(run.audit.bound.get("reason"))
        if reason:
            reasons.append(Html(f"<p>{named(method)}: {show(told(reason))}</p>"))
    if not kinds and not reasons:
        return None
    blocks = [_kind(name, lines) for name, lines in kinds.items()]
    return section("bounds", say("bounds.title"), say("bounds.lead"), join([*blocks, *reasons]))


def bounds_of(run: Run) -> list[tuple[str, dict[str, Any]]]:
    """The tables in `bound`; its other keys speak of all of them."""
    return [(name, table(value)) for name, value in run.audit.bound.items() if isinstance(value, dict)]


def _lines(method: Method, run: Run, entry: dict[str, Any]) -> list[Line]:
    common = {key: value for key, value in entry.items() if key != "repeats"}
    repeats = [(count, table(value)) for count, value in table(entry.get("repeats")).items()]
    if not repeats:
        return [Line(method, run, None, common)]
    return [Line(method, run, count, common | values) for count, values in repeats]


def _kind(name: str, lines: list[Line]) -> Html:
    keys = [
        key
        for key in dict.fromkeys(key for line in lines for key in line.entry)
        if key not in NOT_SHOWN and any(number(line.entry.get(key)) is not None for line in lines)
    ][:MOST_COLUMNS]
    counted = any(line.transmissions is not None for line in lines)
    limited = any(line.limit is not None for line in lines)
    rows: list[list[Content]] = []
    for line in lines:
        row: list[Content] = [named(line.method)]
        row += [line.transmissions or numbers.DASH] if counted else []
        row += [numbers.mse(line.limit), numbers.mse(line.measured)] if limited else []
        rows.append([*row, *(numbers.plain(number(line.entry.get(key))) for key in keys)])
    head: list[Content] = [say("word.method")]
    head += [say("bounds.transmissions")] if counted else []
    head += [say("bounds.limit"), say("bounds.measured")] if limited else []
    head += [say(f"bound_key.{key}") if f"bound_key.{key}" in TEXTS else code(key) for key in keys]
    title = say(f"bound.{name}") if f"bound.{name}" in TEXTS else show(name)
    about = f"<p>{say(f'bound_is.{name}')}</p>" if f"bound_is.{name}" in TEXTS else ""
    table_ = data_table(phrase("bounds.of", name=name), head, rows, css="numbers")
    return Html(
        f'<article class="bound"><h3>{title}</h3>{about}{_alarms(name, lines)}{table_}{_terms(lines)}</article>'
    )


def _alarms(name: str, lines: list[Line]) -> str:
    """Attacks below the bound: a contradiction for one that holds for everybody, a remark for one that does not."""
    seen: dict[int, Line] = {line.method.number: line for line in lines}
    parts = []
    for line in seen.values():
        if name == "entropy":
            parts += [
                f'<p class="alarm">{named(line.method)}: {show(told(found))}</p>' for found in line.run.audit.alarms
            ]
        below = [found for item in items(line.entry.get("below")) if (found := text(item))]
        if below:
            parts.append(f"<p>{named(line.method)}: {say('bounds.below', names=', '.join(below))}</p>")
    return "".join(parts)


def _terms(lines: list[Line]) -> str:
    """Whom the bound holds for, and what else must be known to read it."""
    entries = [line.entry for line in lines]
    whom = dict.fromkeys(found for entry in entries if (found := text(entry.get("holds_for"))))
    notes = dict.fromkeys(found for entry in entries if (found := text(entry.get("note"))))
    listed = "".join(f"<li>{show(told(line))}</li>" for line in whom)
    parts = [f"<h4>{say('bounds.for')}</h4><ul>{listed}</ul>" if whom else f"<p>{say('bounds.no_assumptions')}</p>"]
    return "".join([*parts, *(f'<p class="quiet">{show(told(note))}</p>' for note in notes)])
