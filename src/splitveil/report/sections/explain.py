"""Gate and slot pictures: what the surrogate of each method looks at, and planes of its features."""

from __future__ import annotations

import shlex

from splitveil.core.shell import shown_path
from splitveil.report.figures import figures
from splitveil.report.figures.figure import Figure
from splitveil.report.markup import Html, attribute, data_table, details, join, phrase, say, section, show
from splitveil.report.method import Method
from splitveil.report.run import Run
from splitveil.report.sections.badge import code, named

BUDGET = 1_500_000  # characters of figures in one page, beside pictures and everything else below 10 MB


def explain(methods: list[Method]) -> Html | None:
    """One block per method that has figures, drawn from its most telling run; the first is open."""
    chosen = [(method, run) for method in methods if (run := _telling(method)) is not None]
    blocks: list[Html] = []
    used = 0
    for method, run in chosen:
        drawn = join([_figure(figure) for figure in figures(run.explained, phrase)])
        used += len(drawn)
        if blocks and used > BUDGET:
            break
        body = Html(f'<p class="quiet">{_source(run)}</p><div class="figures">{drawn}</div>')
        title = Html(f'{named(method)} <span class="folder">{show(run.name)}</span>')
        block = details(title, body, css="run")
        blocks.append(block if blocks else Html(block.replace("<details", "<details open", 1)))
    if not blocks:
        return None
    left = len(chosen) - len(blocks)
    if left:
        told = say("explain.left_out", count=str(left), command=code("splitveil explain RUN"))
        blocks.append(Html(f'<p class="quiet">{told}</p>'))
    return section("explain", say("explain.title"), say("explain.lead"), join(blocks))


def _telling(method: Method) -> Run | None:
    """A run that `splitveil explain` has seen, else one with stored maps."""
    known = [run for run in method.runs if run.explained.known]
    return min(known, key=lambda run: run.explained.stored, default=None)


def _source(run: Run) -> Html:
    explained = run.explained
    if explained.stored:
        return say("explain.stored", command=code(shlex.join(["splitveil", "explain", shown_path(run.path)])))
    total = max((len(plane.labels) for plane in explained.planes.values()), default=0)
    parts = [("explain.maps", len(explained.labels)), ("explain.planes", total)]  # an undefended run has no maps
    return join([say(key, count=str(count)) for key, count in parts if count], " ")


def _figure(figure: Figure) -> Html:
    table = details(say("word.as_table"), data_table(figure.title, figure.head, figure.rows, css="numbers"))
    wide, chart = "", figure.chart
    if figure.wide:  # on a phone it keeps a readable size and scrolls
        wide = " full"
        chart = Html(
            f'<div class="scroll" tabindex="0" role="region" {attribute("aria-label", figure.title)}>{chart}</div>'
        )
    return Html(
        f'<figure class="plot{wide}"><figcaption>{show(figure.title)}</figcaption><p>{show(figure.caption)}</p>'
        f"{chart}{table}</figure>"
    )
