# ruff: noqa: RUF001 - the Chinese comma is meant
"""Runs grouped into methods: one method is one configuration, its runs differ in the seed alone."""

from __future__ import annotations

import json
from collections.abc import Iterable

from splitveil.report.flat_config import flatten
from splitveil.report.markup import Phrase, phrase, plain
from splitveil.report.method import Method
from splitveil.report.method_names import apart, label, labels, short_names
from splitveil.report.one_model import mark_kin
from splitveil.report.run import Run


def group_runs(runs: list[Run], *, in_full: bool = False) -> list[Method]:
    """Methods in order of appearance, the undefended one first; labels `in_full` tell strengths even of a lone run."""
    groups: dict[str, list[Run]] = {}
    of_family: dict[int, str] = {}
    for position, run in enumerate(mark_kin(runs)):
        key = _key(run) or f"alone {position}"
        if run.family is not None:
            key = of_family.setdefault(run.family, key)
        groups.setdefault(key, []).append(run)
    open_group = _undefended(groups.values())
    ordered = sorted(groups.values(), key=lambda group: group is not open_group)
    bases = [label(group[0]) for group in ordered] if in_full else labels([group[0] for group in ordered])
    shorts = short_names([group[0] for group in ordered])
    methods = []
    for number, group in enumerate(ordered):
        undefended = group is open_group
        base = bases[number]
        twins = [other for other, name in zip(ordered, bases, strict=True) if name == base]
        extra = "".join(f", {told}" for told in apart(group[0], [twin[0] for twin in twins]))
        full = _with(base, extra)
        short = plain(shorts[number])
        if undefended:
            short = _without_defence(group[0].sigma)
            full = full if group[0].sigma else _with(short, extra)
        methods.append(Method(number, tuple(group), full, short, undefended))
    return methods


def _with(name: Phrase, extra: str) -> Phrase:
    return Phrase(name.en + extra, name.zh + extra.replace(", ", "，"))


def _without_defence(sigma: float | None) -> Phrase:
    """What the model beside the headline is called: one that adds noise is defended by that."""
    return phrase("label.noise_alone", value=f"{sigma:g}") if sigma else phrase("label.undefended")


def _key(run: Run) -> str | None:
    flat = flatten(run.config)
    flat.pop("seed", None)
    return json.dumps(sorted(flat.items())) if flat else None


def _undefended(groups: Iterable[list[Run]]) -> list[Run] | None:
    """No surrogate, nothing but structural defences; of several one that works, was attacked, is named so, has least
    noise, and of equals the most accurate: beside one that was trained worse, every defence looks cheap."""
    ranked = []
    for group in groups:
        method = Method(0, tuple(group), plain(""), plain(""), False)
        if method.unprotected:
            named = "undefended" in group[0].name.lower()
            least = (method.idle, not method.leak.known, not named, group[0].sigma or 0.0, -(method.accuracy or 0.0))
            ranked.append((least, _key(group[0]) or "", group))
    return min(ranked, key=lambda entry: entry[:2])[2] if ranked else None
