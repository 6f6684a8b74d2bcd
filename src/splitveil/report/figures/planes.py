"""Planes of the features: principal components and t-SNE, before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from splitveil.report import numbers
from splitveil.report.charts.scatter import Cloud, Panel, scatter_chart
from splitveil.report.explain_file import Explained, Plane
from splitveil.report.figures.figure import Figure, Words, make_figure
from splitveil.report.markup import Content, plain

MOST_CLASSES = 10  # as many classes as colours and shapes tell apart at a glance; the others are grey
PLANES = ("before", "after")


def plane_figures(explained: Explained, words: Words) -> Iterator[Figure]:
    """One figure for each kind of plane there is."""
    shown = [(name, explained.planes[name]) for name in PLANES if name in explained.planes]
    for kind in ("pca", "tsne"):
        panels = [_panel(kind, name, plane, explained, words) for name, plane in shown if getattr(plane, kind)]
        if panels:
            chart = scatter_chart(panels, words(f"figure.{kind}"))
            head: list[Content] = [words("word.run"), words("measure.neighbours"), words("measure.within")]
            rows: list[list[Content]] = [
                [plane.run, numbers.percent(plane.neighbours), numbers.percent(plane.within)] for _, plane in shown
            ]
            if kind == "pca":
                head.append(words("measure.planes"))
                for row, (_, plane) in zip(rows, shown, strict=True):
                    known = [share for share in plane.ratio if share is not None]
                    row.append(numbers.percent(sum(known)) if known else numbers.DASH)
            yield make_figure(kind, words, chart, head, rows, wide=len(panels) > 1)


def _panel(kind: str, name: str, plane: Plane, explained: Explained, words: Words) -> Panel:
    points = plane.pca if kind == "pca" else plane.tsne
    common = [label for label, _ in Counter(plane.labels).most_common()]
    chosen = sorted(common[:MOST_CLASSES]) if len(common) > MOST_CLASSES else sorted(common)
    clouds = [
        Cloud(
            plain(explained.class_name(label)),
            number,
            tuple(point for point, other in zip(points, plane.labels, strict=True) if other == label),
        )
        for number, label in enumerate(chosen)
    ]
    rest = tuple(point for point, label in zip(points, plane.labels, strict=True) if label not in set(chosen))
    if rest:
        clouds.append(Cloud(words("panel.rest"), None, rest))
    title = words(f"panel.{name if len(explained.planes) > 1 else 'only'}", run=plane.run)
    labels = []
    for number, share in enumerate(plane.ratio if kind == "pca" else (None, None), start=1):
        if kind == "tsne":
            labels.append(words("axis.tsne", number=number))
        elif share is None:
            labels.append(words("axis.plain_component", number=number))
        else:
            labels.append(words("axis.component", number=number, share=numbers.percent(share, 0)))
    return Panel(title, labels[0], labels[1], tuple(clouds))
