"""Figures of a run as files: complete, closed documents that agree with the numbers."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from explaining import CLASSES, FIGURES, add_explain, explain_tree

from splitveil.core.errors import RunFolderError, UsageError
from splitveil.report.charts.frame import Box
from splitveil.report.charts.heat import Band, heat_chart
from splitveil.report.charts.lines import NO_METHOD, Curve, line_chart
from splitveil.report.charts.scale import LogScale, log_fit
from splitveil.report.charts.scatter import Cloud, Panel, scatter_chart
from splitveil.report.charts.strip import strip_chart
from splitveil.report.explain_file import parse_explained
from splitveil.report.figures import figures
from splitveil.report.figures.files import write_figures
from splitveil.report.markup import Phrase, phrase, plain

SVG = "{http://www.w3.org/2000/svg}"
NAME = plain("name")


def texts(path: Path) -> list[str]:
    return [element.text or "" for element in ElementTree.parse(path).iter(f"{SVG}text")]


def test_every_figure_is_a_document_of_its_own(demo: Path, tmp_path: Path) -> None:
    add_explain(demo / "defended")
    found = write_figures(demo / "defended", tmp_path / "figures")
    assert list(found) == FIGURES
    for path in found.values():
        source = path.read_text(encoding="utf-8")
        root = ElementTree.fromstring(source)
        box = [float(value) for value in root.attrib["viewBox"].split()]
        assert [float(root.attrib["width"]), float(root.attrib["height"])] == box[2:]
        assert root.find(f"{SVG}title") is not None
        assert "splitveil:0.1.0|explain|seed:1" in (root.findtext(f"{SVG}desc") or "")
        # nothing that other programs do not understand, nothing from elsewhere, nothing for the page's script
        assert "var(" not in source
        assert "data-" not in source
        assert source.count("://") == 1  # the name of the format
        links = [value for element in root.iter() for key, value in element.attrib.items() if key.endswith("href")]
        assert all(link.startswith("data:image/png;base64,") for link in links)


def test_axes_and_legends_have_words(demo: Path, tmp_path: Path) -> None:
    add_explain(demo / "defended")
    found = write_figures(demo / "defended", tmp_path / "figures")
    expected = {
        "attention": ["Weight relative to the class mean", "equal weights", "Trouser"],
        "slot_mass": ["Slot", "Share", "Trouser"],
        "slot_training": ["Epoch", "Share", "slot 1", "slot 4"],
        "assignment": ["Slot", "Responsibility", "Ankle boot"],
        "looks": ["picture", "slot 4", "Pullover"],
        "dimension_gate": ["Channel", "Gate", "Dress"],
        "snr_gate_places": ["channel 8", "Gate"],
        "gate_training": ["Epoch", "Gate", "dimension gate", "SNR gate", "shut off"],
        "pca": ["PC 1 (31\u00a0% of the variance)", "before: undefended", "after: defended", *CLASSES],
        "tsne": ["t-SNE 1", "t-SNE 2", *CLASSES],
    }
    for name, words in expected.items():
        assert set(words) <= set(texts(found[name])), name
    assert "class gate" not in texts(found["gate_training"])  # it is switched off


def test_chinese_figures_are_chinese(demo: Path, tmp_path: Path) -> None:
    add_explain(demo / "defended")
    english = write_figures(demo / "defended", tmp_path / "en")
    chinese = write_figures(demo / "defended", tmp_path / "zh", lang="zh")
    for name in FIGURES:
        han = [text for text in texts(chinese[name]) if re.search(r"[\u4e00-\u9fff]", text)]
        assert han, name
        assert not [text for text in texts(english[name]) if re.search(r"[\u4e00-\u9fff]", text)]
    with pytest.raises(UsageError, match="no language"):
        write_figures(demo / "defended", tmp_path / "fr", lang="fr")


def test_nothing_to_draw(demo: Path, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="nothing to draw"):
        write_figures(demo / "defended", tmp_path / "figures")
    assert not (tmp_path / "figures").exists()


def test_components_are_not_called_slots() -> None:
    tree = explain_tree() | {"surrogate": "gmm"}
    made = {figure.name: figure for figure in figures(parse_explained(tree), phrase)}
    assert made["slot_mass"].title == Phrase("Mass of the components in each class", "各类别中分量的质量")
    assert "slot" not in made["slot_training"].chart.replace('data-name="', "")


def test_the_axis_of_shares_begins_at_zero() -> None:
    tree = explain_tree()
    for shares in ([[0.5, 0.5], [0.48, 0.52]], [[1.0, 0.0], [0.9, 0.1]]):
        tree["training"] |= {"epochs": [2, 3], "slot_share": shares}
        made = {figure.name: figure for figure in figures(parse_explained(tree), phrase)}
        lines = re.findall(r'data-v=.*?<polyline points="\S+?,(\S+) \S+?,(\S+)"', made["slot_training"].chart)
        heights = [Box(460, 230).y0 - float(line[epoch]) for epoch in (0, 1) for line in lines]
        values = [share for row in shares for share in row]
        unit = max(heights) / max(values)
        assert heights == pytest.approx([unit * value for value in values], abs=0.2)


def shades(chart: str) -> dict[str, int]:
    """How many cells have which opacity; the colour key (a column of its own) is left out."""
    paths = re.findall(r'<path class="cell" fill-opacity="([\d.]+)" d="([^"]+)"', chart)
    found: dict[str, int] = {}
    for opacity, path in paths:
        cells = [cell for cell in path.split("z") if cell and not cell.split("h")[1].startswith("11.00")]
        if cells:
            found[opacity] = found.get(opacity, 0) + len(cells)
    return found


def test_heat_is_as_strong_as_the_value() -> None:
    values = [[0.0, 0.25, 0.5], [0.5, None, 2.0]]
    chart = heat_chart(values, [Band("a"), Band("b")], NAME, NAME, NAME, high=0.5)
    assert shades(chart) == {"0.5": 1, "1": 3}  # 0 is left blank, what lies above the scale is full
    assert len(re.findall(r'class="void" d="([^"]+)"', chart)[0].split("z")) - 1 == 1
    assert 'data-v="0 0.25 0.5 0.5 - 2"' in chart


def test_scatter_puts_points_where_they_belong() -> None:
    clouds = (
        Cloud(plain("a"), 0, ((1.0, 1.0), (-1.0, -1.0))),
        Cloud(plain("b"), 1, ((0.0, 0.0),)),
        Cloud(plain("rest"), None, ((0.5, -0.5),)),
    )
    chart = scatter_chart([Panel(NAME, NAME, NAME, clouds)], NAME)
    paths = dict(re.findall(r'<path class="dots(?: round)? (\w+)" d="([^"]+)"', chart))
    assert set(paths) == {"k0", "k1", "rest"}
    (x1, y1), (x2, y2) = [tuple(map(float, pair)) for pair in re.findall(r"M([\d.]+) ([\d.]+)", paths["k0"])]
    assert x1 > x2
    assert y1 < y2  # up is up
    (middle,) = [tuple(map(float, pair)) for pair in re.findall(r"M([\d.]+) ([\d.]+)", paths["k1"])]
    assert middle == pytest.approx(((x1 + x2) / 2, (y1 + y2) / 2))


def test_more_classes_than_colours_are_grey() -> None:
    tree = explain_tree(points=60, classes=25)
    (figure,) = [one for one in figures(parse_explained(tree), phrase) if one.name == "pca"]
    assert len(set(re.findall(r'class="dots(?: round)? (k\d)"', figure.chart))) == 10
    assert "other classes" in figure.chart


def test_strips_have_a_stroke_per_value() -> None:
    chart = strip_chart([("a", [0.5, 1.0, 2.0]), ("b", [1.0])], NAME, NAME, plain("even"))
    assert [path.count("M") for path in re.findall(r'class="rug" d="([^"]+)"', chart)] == [3, 1]
    low, _, high = (float(x) for x in re.findall(r"M([\d.]+) ", re.findall(r'class="rug" d="([^"]+)"', chart)[0]))
    line = float(re.findall(r'class="floor" x1="([\d.]+)"', chart)[0])
    assert low < line < high


def test_a_logarithmic_axis_counts_factors() -> None:
    scale = log_fit([1e3, 1e6], 0.0, 300.0)
    assert isinstance(scale, LogScale)
    assert scale(1e4) - scale(1e3) == pytest.approx(scale(1e6) - scale(1e5))
    ticks = scale.ticks(5)
    assert 1e4 in ticks
    assert 1e5 in ticks
    assert all(scale.low <= tick <= scale.high for tick in ticks)
    assert scale.label(2e5, 0.0) == "200\u00a0k"
    same = log_fit([5.0, 5.0], 0.0, 1.0)
    assert 0 < same(5.0) < 1


def test_curves_of_slots_differ_without_colour() -> None:
    curves = [Curve(NO_METHOD, f"k{n}", plain(f"s{n}"), ((1.0, 0.1 * n), (2.0, 0.2)), shape=n) for n in range(3)]
    chart = line_chart(curves, NAME, NAME, legend=True)
    for shape in ("circle", "rect", "polygon"):
        assert f"<{shape}" in chart
    assert "data-m" not in chart  # the page's buttons for methods do not hide slots
