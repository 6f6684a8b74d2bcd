"""Figures as files of their own: vector graphics that a paper can use as they are."""

from __future__ import annotations

import html
import re
from importlib import resources
from pathlib import Path

from splitveil.core.errors import RunFolderError, UsageError, nearest
from splitveil.core.files import write_atomic
from splitveil.core.shell import command
from splitveil.report.figures import figures
from splitveil.report.figures.figure import Figure, Words
from splitveil.report.markup import Phrase, phrase, plain
from splitveil.report.run_files import read_run, with_details
from splitveil.report.texts import LANGUAGES


def write_figures(run: Path, out: Path, *, lang: str = "en") -> dict[str, Path]:
    """Write every figure of a run as OUT/NAME.svg and return where each is; older figures of these names are replaced.

    What is drawn comes from RUN/explain/explain.json, or from the maps that training stored. Raises RunFolderError when
    there is neither. Example: ``write_figures(Path("runs/mine"), Path("figures"))``.
    """
    if lang not in LANGUAGES:
        raise UsageError(f"There is no language '{lang}'.", nearest(lang, LANGUAGES))
    explained = with_details(read_run(run)).explained
    made = figures(explained, _words(lang))
    if not made:
        raise RunFolderError(f"There is nothing to draw about {run}.", f"Make it with: {command('explain', run)}")
    paths = {figure.name: out / f"{figure.name}.svg" for figure in made}
    for figure in made:
        write_atomic(paths[figure.name], stand_alone(figure, explained.signature, lang))
    return paths


def _words(lang: str) -> Words:
    def words(key: str, **values: Phrase | str | int) -> Phrase:
        both = phrase(key, **values)
        return plain(both.en if lang == "en" else both.zh)

    return words


def stand_alone(figure: Figure, signature: str, lang: str) -> str:
    """The chart of a page as a document: own style, size in pixels, no attributes that only the page's script reads.

    Caption and signature are inside, where programs show them as a description.
    """
    chart = figure.chart
    head = re.match(r'<svg class="([^"]*)" viewBox="0 0 (\d+) (\d+)"[^>]*>', chart)
    assert head is not None  # charts.frame.svg writes every chart
    body = re.sub(r' data-[a-z-]+(="[^"]*")?', "", chart[head.end() :])
    style = resources.files("splitveil.report").joinpath("assets", "figure.css").read_text(encoding="utf-8")
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" xml:lang="{lang}" '
        f'width="{head[2]}" height="{head[3]}" viewBox="0 0 {head[2]} {head[3]}" role="img">\n'
        f"<title>{html.escape(figure.title.en)}</title>\n"
        f"<desc>{html.escape(figure.caption.en)} {html.escape(signature)}</desc>\n"
        f'<style>\n{style}</style>\n<rect width="{head[2]}" height="{head[3]}" fill="#ffffff"/>\n{body}\n'
    )
