"""How the configurations differ, key by key."""

from __future__ import annotations

from splitveil.report import numbers
from splitveil.report.markup import Content, Html, data_table, phrase, say, section
from splitveil.report.methods import Method, flatten
from splitveil.report.sections.badge import code, named


def config_diff(methods: list[Method]) -> Html | None:
    shown = [method for method in methods if method.runs[0].config]
    if len(shown) < 2:
        return None
    flats = [flatten(method.runs[0].config) for method in shown]
    keys = [key for key in dict.fromkeys(key for flat in flats for key in flat) if key != "seed"]
    differing = [key for key in keys if len({flat.get(key) for flat in flats}) > 1]
    if not differing:
        return None
    head: list[Content] = [say("configs.key"), *(named(method, method.short) for method in shown)]
    rows: list[list[Content]] = [[code(key), *(flat.get(key, numbers.DASH) for flat in flats)] for key in differing]
    same = say("configs.same", count=str(len(keys) - len(differing)))
    body = data_table(phrase("configs.title"), head, rows, css="numbers") + f'<p class="quiet">{same}</p>'
    return section("configs", say("configs.title"), say("configs.lead"), Html(body))
