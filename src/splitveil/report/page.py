"""Put the parts together into one file."""

from __future__ import annotations

import base64
import hashlib
import html
from datetime import UTC, datetime
from importlib import resources

from splitveil import __version__
from splitveil.experiments.compare.sweep_index import Sweep
from splitveil.report.markup import Html, Phrase, attribute, phrase, plain, say, show
from splitveil.report.method import Method
from splitveil.report.sections.attacks import attacks
from splitveil.report.sections.badge import badge
from splitveil.report.sections.bounds import bounds
from splitveil.report.sections.configs import config_diff
from splitveil.report.sections.cost import cost
from splitveil.report.sections.explain import explain
from splitveil.report.sections.frontier import frontier
from splitveil.report.sections.gallery import gallery
from splitveil.report.sections.glossary import glossary
from splitveil.report.sections.hero import hero
from splitveil.report.sections.leakage import leakage
from splitveil.report.sections.provenance import provenance
from splitveil.report.sections.runs import runs_table
from splitveil.report.sections.training import training
from splitveil.report.verdict import judge


def page(methods: list[Method], sweeps: list[Sweep], command: str, *, title: str | None, lang: str) -> str:
    """The whole document. It carries its own policy: no network, no script but ours, no style but ours."""
    verdict = judge(methods)
    heading = plain(title) if title else phrase("page.title")
    below = {
        "runs": runs_table(methods, sweeps),
        "attacks": attacks(methods),
        "leakage": leakage(methods),
        "training": training(methods),
        "explain": explain(methods),
        "cost": cost(methods),
        "bounds": bounds(methods),
        "configs": config_diff(methods),
        "provenance": provenance(methods, sweeps, command),
        "glossary": glossary(),
    }
    shown = {name: part for name, part in below.items() if part is not None}
    style, script = _asset("report.css"), _asset("report.js")
    return "\n".join(
        [
            f'<!doctype html><html lang="{lang}"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta name="generator" content="splitveil {__version__}"><meta name="color-scheme" content="light dark">',
            f"<title>{html.escape(heading.en if lang == 'en' else heading.zh)}</title>",
            f"<style>{style}</style><script>{script}</script></head><body>",
            f'<a class="skip" href="#main">{say("page.skip")}</a>',
            _header(heading, ["gallery", "frontier", *shown]),
            f'<main id="main">{_legend(methods)}<div class="first">',
            f'<section class="hero" id="verdict" aria-labelledby="verdict-title"><h2 class="unseen" id="verdict-title">'
            f"{say('hero.title')}</h2>{hero(verdict, methods)}</section>",
            f"{gallery(methods, verdict)}{frontier(methods)}</div>",
            *shown.values(),
            "</main>",
            _footer(),
            '<dialog id="zoom"><div class="zoom-body"></div><form method="dialog">',
            f"<button>{say('page.close')}</button></form></dialog>",
            '<div id="tip" role="status" hidden></div></body></html>',
        ]
    )


def _asset(name: str) -> str:
    return resources.files("splitveil.report").joinpath("assets", name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """Content security policy: even markup that slipped through escaping could neither run nor load anything."""
    style_hash, script_hash = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)
    )
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{style_hash}'; script-src 'sha256-{script_hash}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _header(heading: Phrase, anchors: list[str]) -> Html:
    links = "".join(f'<a href="#{name}">{say(f"nav.{name}")}</a>' for name in anchors)
    return Html(
        f'<header class="top"><h1><svg class="mark" viewBox="0 0 24 24" aria-hidden="true">'
        f'<path d="M3 5h8v14H3z"/><path class="veil" d="M13 5h2v2h-2zm4 0h2v2h-2zm-4 4h2v2h-2zm6 0h2v2h-2zm-3 2h2v2h-2z'
        f'm-3 2h2v2h-2zm5 2h2v2h-2zm-5 2h2v2h-2zm3 0h2v2h-2z"/></svg><span>{show(heading)}</span></h1>'
        f'<nav {attribute("aria-label", phrase("page.contents"))}>{links}</nav><div class="tools">'
        f'<button type="button" id="language" {attribute("aria-label", phrase("page.language_label"))} hidden>'
        f"{say('page.language')}</button>"
        f'<button type="button" id="theme" {attribute("aria-label", phrase("page.theme"))} hidden>'
        '<svg viewBox="0 0 16 16" aria-hidden="true"><circle cx="8" cy="8" r="6"/><path d="M8 2a6 6 0 0 1 0 12z"/>'
        "</svg></button></div></header>"
    )


def _legend(methods: list[Method]) -> Html:
    crowded = len(methods) > 4
    chips = "".join(
        f'<button type="button" aria-pressed="true" data-toggle="{method.number}" {attribute("title", method.label)}>'
        f"{badge(method)}<span>{show(method.short if crowded else method.label)}</span></button>"
        for method in methods
        if not method.failed or any(run.metrics for run in method.runs)  # else there is nothing to hide
    )
    return Html(f'<div class="legend" role="group" {attribute("aria-label", phrase("page.methods"))}>{chips}</div>')


def _footer() -> Html:
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return Html(f"<footer><p>{say('page.made', version=__version__, when=when)} {say('page.offline')}</p></footer>")
