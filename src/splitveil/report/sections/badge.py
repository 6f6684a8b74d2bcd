"""How a method is named on the page: letter in its colour, then its label."""

from __future__ import annotations

import html

from splitveil.report.markup import Content, Html, show
from splitveil.report.method import Method


def badge(method: Method) -> Html:
    return Html(f'<span class="badge {method.colour}" aria-hidden="true">{method.letter}</span>')


def named(method: Method, label: Content | None = None) -> Html:
    return Html(f'<span class="named">{badge(method)}<span>{show(label or method.label)}</span></span>')


def code(text: str) -> Html:
    return Html(f"<code>{html.escape(text)}</code>")
