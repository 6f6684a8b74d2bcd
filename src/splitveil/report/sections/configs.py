"""How the configurations differ, key by key."""

from __future__ import annotations

from splitveil.report import numbers
from splitveil.report.flat_config import flatten
from splitveil.report.markup import Content, Html, data_table, details, phrase, say, section
from splitveil.report.method import Method
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
    # A whole table of options that only some methods have (a surrogate's) would bury what was chosen on purpose.
    single = [key for key in differing if len({flat[key] for flat in flats if key in flat}) == 1]
    partial = [key for key in single if not _is_choice(key)]
    main = [key for key in differing if key not in partial]
    head: list[Content] = [say("configs.key"), *(named(method, method.short) for method in shown)]
    body = _table(head, main, flats) if main else Html("")
    if partial:
        body = Html(body + details(say("configs.partial", count=str(len(partial))), _table(head, partial, flats)))
    same = say("configs.same", count=str(len(keys) - len(differing)))
    lead = say("configs.lead")
    return section("configs", say("configs.title"), lead, Html(f'{body}<p class="quiet">{same}</p>'))


def _is_choice(key: str) -> bool:
    """Keys that somebody sets on purpose: they stay in the main table even where only one method has them."""
    return key.split(".")[-1] in {"name", "mode", "preset", "sigma", "weight"}


def _table(head: list[Content], keys: list[str], flats: list[dict[str, str]]) -> Html:
    rows: list[list[Content]] = [[code(key), *(flat.get(key, numbers.DASH) for flat in flats)] for key in keys]
    return data_table(phrase("configs.title"), head, rows, css="numbers")
