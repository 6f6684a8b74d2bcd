"""The pictures: original, the best reconstruction per method; worst leaks first."""

from __future__ import annotations

import hashlib
import html
from dataclasses import dataclass, field
from pathlib import Path

from splitveil.report import numbers
from splitveil.report.gallery_file import Shot
from splitveil.report.markup import Html, attribute, join, phrase, say, section, show
from splitveil.report.method import Method
from splitveil.report.pictures import BUDGET, data_uri, picture_path
from splitveil.report.sections.badge import badge
from splitveil.report.verdict import Verdict

MOST_ROWS = 48
FIRST_ROWS = {"few": 4, "some": 3, "many": 2}  # before "show all", by width of a card


@dataclass
class Row:
    """One test picture and what each method's attackers made of it."""

    label: str
    index: int
    original: Path | None
    shots: dict[int, Shot] = field(default_factory=dict)


def gallery(methods: list[Method], verdict: Verdict) -> Html:
    rows = collect(methods)
    # Every audit keeps the same regular pictures and its own worst leaks; only the regular ones compare methods.
    order = sorted(rows, key=lambda row: (len(row.shots), *_leak(row, methods, verdict.headline)), reverse=True)
    cards: list[tuple[str, Html]] = []
    used = 0
    for row in order[:MOST_ROWS]:
        card = _card(row, methods)
        if card is None:
            continue
        used += len(card)
        if cards and used > BUDGET:
            break
        cards.append((row.label, card))
    if not cards:
        return section("gallery", say("gallery.title"), None, Html(f'<p class="empty">{say("gallery.empty")}</p>'))
    columns = len({number for row in rows for number in row.shots})
    width = "few" if columns <= 2 else "some" if columns <= 4 else "many"
    note = say("gallery.part", shown=str(len(cards)), total=str(len(rows))) if len(cards) < len(rows) else Html("")
    body = [
        _controls([label for label, _ in cards]),
        Html(f'<div class="cards {width}" data-first="{FIRST_ROWS[width]}">'),
        *(card for _, card in cards),
        Html("</div>"),
        Html(f'<p class="after-cards"><button type="button" id="all-cards" hidden>{say("gallery.all")}</button>'),
        Html(f" {note}</p>"),
    ]
    return section("gallery", say("gallery.title"), say("gallery.lead"), join(body))


def collect(methods: list[Method]) -> list[Row]:
    """Rows over all methods; two runs share a row when they show the same original."""
    rows: dict[object, Row] = {}
    for method in methods:
        run = method.representative
        for shot in run.shots:
            original = picture_path(run.path, "original", shot.index)
            same = _digest(original) or (run.data_name, shot.index, shot.label)
            row = rows.setdefault((same, shot.index), Row(shot.label, shot.index, original))
            row.shots[method.number] = shot
    return list(rows.values())


def _digest(path: Path | None) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path else None
    except OSError:
        return None


def _leak(row: Row, methods: list[Method], headline: Method | None) -> tuple[bool, float, float]:
    """Larger is worse: in the headline method first, then in whichever defended method leaks most."""
    numbers_ = [headline.number] if headline and headline.number in row.shots else []
    numbers_ = numbers_ or [m.number for m in methods if m.number in row.shots and not m.undefended] or list(row.shots)
    worst = [row.shots[number].best for number in numbers_]
    ssim = max((scores.ssim for scores in worst if scores.ssim is not None), default=-1.0)
    mse = min((scores.mse for scores in worst if scores.mse is not None), default=1e9)
    return bool(headline and headline.number in row.shots), ssim, -mse


def _card(row: Row, methods: list[Method]) -> Html | None:
    figures = []
    original = data_uri(row.original) if row.original else None
    alt = phrase("gallery.alt_original", name=row.label)
    if original:
        figures.append(
            f'<figure class="original"><img src="{original}" {attribute("alt", alt)} decoding="async">'
            f"<figcaption><b>{say('gallery.original')}</b></figcaption></figure>"
        )
    for method in methods:
        shot = row.shots.get(method.number)
        if shot is not None:
            figures.append(_figure(method, shot))
    if not any("<img" in figure for figure in figures):
        return None
    name = f"{row.label} · #{row.index}"
    return Html(
        f'<article class="card" data-class="{html.escape(row.label)}" aria-label="{html.escape(name)}">'
        f'<h3>{html.escape(row.label)} <span class="quiet">#{row.index}</span>'
        f'<button type="button" class="enlarge" {attribute("aria-label", phrase("gallery.enlarge", name=name))} hidden>'
        '<svg viewBox="0 0 16 16" aria-hidden="true"><path d="M9.5 2H14v4.5M14 2 9 7M6.5 14H2V9.5M2 14l5-5"/></svg>'
        f'</button></h3><div class="shots">{"".join(figures)}</div></article>'
    )


def _figure(method: Method, shot: Shot) -> str:
    path = picture_path(method.representative.path, shot.best_attack or "", shot.index)
    uri = data_uri(path) if path else None
    scores = f"SSIM {numbers.ssim(shot.best.ssim)}"
    told = f"{scores}, MSE {numbers.mse(shot.best.mse)}"
    alt = phrase("gallery.alt_shot", name=f"{shot.label} #{shot.index}", method=method.short, scores=told)
    picture = (
        f'<img src="{uri}" {attribute("alt", alt)} decoding="async">'
        if uri
        else f'<div class="missing">{say("gallery.missing")}</div>'
    )
    attack = f' title="{html.escape(shot.best_attack)}"' if shot.best_attack else ""
    return (
        f'<figure data-m="{method.number}"{attack}>{picture}<figcaption><b>{badge(method)}{show(method.short)}</b>'
        f"<span>{scores}</span><span>MSE {numbers.mse(shot.best.mse)}</span></figcaption></figure>"
    )


def _controls(labels: list[str]) -> Html:
    options = "".join(
        f'<option value="{html.escape(label)}">{html.escape(label)}</option>' for label in sorted(set(labels))
    )
    return Html(
        f'<div class="controls" hidden><label for="class-filter">{say("gallery.filter")}</label>'
        f'<select id="class-filter"><option value="" {attribute("data-text", phrase("gallery.every_class"))}>'
        f"{phrase('gallery.every_class').en}</option>{options}</select>"
        f'<output id="card-count" for="class-filter"></output></div>'
    )
