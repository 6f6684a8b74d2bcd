"""HTML that is safe by construction, in two languages at once.

Everything that is not `Html` is escaped where it enters the page, so a run called "<script>" is shown, never executed.
Both languages are in the page; the `lang` attribute of <html> decides which of them CSS shows. That needs no script.
"""

from __future__ import annotations

import html
from dataclasses import dataclass

from splitveil.report.audit_sentences import in_chinese
from splitveil.report.texts import TEXTS


class Html(str):
    """Text that is already markup."""

    __slots__ = ()


@dataclass(frozen=True)
class Phrase:
    """Plain text (not markup) in both languages."""

    en: str
    zh: str


Content = Html | Phrase | str


def phrase(key: str, **values: Phrase | str | int) -> Phrase:
    """The plain text `key`, with its places filled."""
    english, chinese = TEXTS[key]
    return Phrase(
        english.format(**{name: _pick(value, "en") for name, value in values.items()}),
        chinese.format(**{name: _pick(value, "zh") for name, value in values.items()}),
    )


def _pick(value: Phrase | str | int, lang: str) -> str:
    return (value.en if lang == "en" else value.zh) if isinstance(value, Phrase) else str(value)


def plain(value: Phrase | str) -> Phrase:
    """The same text in both languages, unless it has two already."""
    return value if isinstance(value, Phrase) else Phrase(value, value)


def told(sentence: str) -> Phrase:
    """A sentence from an audit's file: in Chinese too where we know it."""
    return Phrase(sentence, in_chinese(sentence))


def show(value: Content, element: str = "span") -> Html:
    """Markup of any content: markup as it is, text escaped, a phrase as two elements of which one is visible."""
    if isinstance(value, Html):
        return value
    if isinstance(value, str):
        return Html(html.escape(value))
    if value.en == value.zh:
        return Html(html.escape(value.en))
    return Html(
        f'<{element} lang="en">{html.escape(value.en)}</{element}>'
        f'<{element} lang="zh">{html.escape(value.zh)}</{element}>'
    )


def say(key: str, **values: Content) -> Html:
    """The text `key` as markup; its places may hold markup, for example a number in bold."""
    english, chinese = TEXTS[key]
    if english == chinese and not any(isinstance(value, Phrase) for value in values.values()):
        return Html(html.escape(english).format(**{name: show(value) for name, value in values.items()}))
    parts = []
    for lang, template in (("en", english), ("zh", chinese)):
        filled = {name: show(_pick(v, lang) if isinstance(v, Phrase) else v) for name, v in values.items()}
        parts.append(f'<span lang="{lang}">{html.escape(template).format(**filled)}</span>')
    return Html("".join(parts))


def attribute(name: str, value: Phrase | str) -> Html:
    """`name="..."`; where the languages differ, the script swaps it from the two data attributes."""
    value = plain(value)
    first = f'{name}="{html.escape(value.en)}"'
    if value.en == value.zh:
        return Html(first)
    return Html(f'{first} data-en-{name}="{html.escape(value.en)}" data-zh-{name}="{html.escape(value.zh)}"')


def join(parts: list[Html], separator: str = "") -> Html:
    return Html(separator.join(parts))


def bold(value: Content) -> Html:
    return Html(f"<strong>{show(value)}</strong>")


def data_table(caption: Phrase, head: list[Content], rows: list[list[Content]], *, css: str = "") -> Html:
    """A table that scrolls sideways on a phone; the first column names the row, the others are numbers."""
    top = "".join(f'<th scope="col">{show(cell)}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{show(row[0])}</th>' + "".join(f"<td>{show(cell)}</td>" for cell in row[1:]) + "</tr>"
        for row in rows
    )
    return Html(
        f'<div class="scroll" tabindex="0" role="region" {attribute("aria-label", caption)}>'
        f'<table class="{css}"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def details(summary: Content, body: Html, *, css: str = "more") -> Html:
    return Html(f'<details class="{css}"><summary>{show(summary)}</summary>{body}</details>')


def section(name: str, title: Content, lead: Content | None, body: Html) -> Html:
    """A titled part of the page; `name` is its anchor."""
    intro = f'<p class="lead">{show(lead)}</p>' if lead is not None else ""
    return Html(
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{show(title)}</h2>'
        f"{intro}{body}</section>"
    )
