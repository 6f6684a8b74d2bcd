"""The figure for a paper: a well-formed file that stands alone."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from splitveil.experiments.compare.comparison import Comparison, compare
from splitveil.experiments.compare.prose import parts
from splitveil.experiments.compare.record import NOT_ATTACKED, Record, Setting
from splitveil.experiments.compare.render import as_text
from splitveil.experiments.compare.view import View
from splitveil.report.charts.paper import COLOURS, PLAIN_COLOUR, frontier_figure

SETTING = Setting("cifar10", "published", "training_time", "standard", "100", "abc", "0.1.0")


def records(methods: int = 2, seeds: int = 2, setting: Setting = SETTING) -> list[Record]:
    return [
        Record(
            name=f"{method}-{weight}-{seed}",
            setting=setting,
            settings={"surrogate.name": f"m{method:02d}", "train.privacy_weight": float(weight)},
            seed=seed,
            accuracy=0.9 - weight / 100 + seed / 1000,
            scores={"worst_case": {"mse": 0.01 * weight + 0.002 * method + seed / 5000, "ssim": 0.5 - weight / 50}},
            floors={"mean_image": 0.06},
        )
        for method in range(methods)
        for weight in (1, 2, 3)
        for seed in range(seeds)
    ]


def draw(found: Comparison) -> ElementTree.Element:
    text = frontier_figure(found)
    assert "nan" not in text
    assert "http://www.w3.org/2000/svg" in text
    assert "<script" not in text
    return ElementTree.fromstring(text)


def tags(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return root.findall(f".//{{http://www.w3.org/2000/svg}}{name}")


def test_a_line_per_method_and_a_mark_per_cell() -> None:
    root = draw(compare(records(3)))
    assert len(tags(root, "polyline")) == 3
    assert len(tags(root, "title")) == 9
    words = [element.text for element in tags(root, "text")]
    assert "m00 (2 seeds)" in words
    assert "mean picture" in words
    assert "Bars: standard deviation over seeds." in words


def test_tested_pairs_of_single_marks_are_joined_by_arrows() -> None:
    def links(found: Comparison) -> list[dict[str, str]]:
        return [line.attrib for line in tags(draw(found), "line") if line.attrib["class"] == "link"]

    single = [one for one in records(3) if one.settings["train.privacy_weight"] == 1.0]
    names = sorted(compare(single).tables[0].group.methods)
    asked = View(pairs=((names[1], names[0]), (names[0], "no such method")))
    (link,) = links(compare(single, asked))
    # m01 lies .002 right of m00 at the same accuracy, and the arrow leads to the first method of the pair
    assert float(link["x1"]) < float(link["x2"])
    assert link["y1"] == link["y2"]
    words = [element.text for element in tags(draw(compare(single, asked)), "text")]
    assert "Bars: standard deviation over seeds. Arrows: tested pairs." in words
    assert not links(compare(single))
    assert not links(compare(records(3), asked))  # curves need no arrows
    cuts = [replace(one, settings={**one.settings, "model.cut": cut}) for one in single for cut in (2, 4)]
    assert len(links(compare(cuts, asked))) == 2  # one arrow at each cut


def test_a_floor_far_away_is_named_at_the_edge() -> None:
    far = [replace(one, floors={"mean_image": 0.5}) for one in records(1)]
    root = draw(compare(far))
    assert "mean picture at 0.50000 \N{RIGHTWARDS ARROW}" in [element.text for element in tags(root, "text")]
    assert not [line for line in tags(root, "line") if line.attrib["class"] == "floor"]


def test_the_floor_is_the_mean_over_the_runs_that_are_shown() -> None:
    """Seeds of the disjoint protocol are attacked on pictures of their own."""
    apart = [replace(one, floors={"mean_image": 0.5 + 0.1 * one.seed}) for one in records(1)]
    assert {one.seed for one in apart} == {0, 1}
    found = compare(apart)
    words = [element.text for element in tags(draw(found), "text")]
    assert "mean picture at 0.55000 \N{RIGHTWARDS ARROW}" in words
    assert "MSE of guessing without the feature: mean image 0.55000." in as_text(parts(found))


def test_more_private_is_to_the_right() -> None:
    for measure in ("mse", "ssim"):
        root = draw(compare(records(1), View(measure=measure)))
        places = [
            float(next(iter(group.iter("{http://www.w3.org/2000/svg}circle"))).attrib["cx"])
            for group in tags(root, "g")
            if group.find("{http://www.w3.org/2000/svg}title") is not None
        ]
        assert places == sorted(places)


def test_every_setting_has_a_panel() -> None:
    other = replace(SETTING, mode="inference_time")
    root = draw(compare([*records(), *records(setting=other)]))
    assert len([e for e in tags(root, "text") if e.attrib.get("class") == "name"]) == 2
    assert root.attrib["viewBox"].split()[2] == "920"


def test_many_methods_get_colours_and_names_that_hold_anything() -> None:
    found = records(len(COLOURS) + 2)
    found = [replace(one, label=f"<b>&{one.settings['surrogate.name']}") for one in found]
    words = [element.text or "" for element in tags(draw(compare(found)), "text")]
    assert sum(word.startswith("<b>&m") for word in words) == len(COLOURS) + 2


def colour_of(found: Comparison, method: str) -> str:
    """The colour that the legend gives to the method."""
    elements = [element for element in draw(found).iter() if "fill" in element.attrib or element.text]
    place = next(i for i, element in enumerate(elements) if (element.text or "").startswith(f"{method} ("))
    return next(element.attrib["fill"] for element in reversed(elements[:place]) if "fill" in element.attrib)


def test_noise_alone_is_black_wherever_it_stands_in_the_alphabet() -> None:
    def without(one: Record, label: str, **more: float) -> Record:
        return replace(one, name=f"{label}{one.name}", label=label, settings={"defence.noise.sigma": 0.1, **more})

    single = [one for one in records(1) if one.settings["train.privacy_weight"] == 1.0]
    for label in ("a first one", "z last one"):
        found = compare([*records(3), *(without(one, label) for one in single)])
        assert colour_of(found, label) == PLAIN_COLOUR
        assert [colour_of(found, f"m{n:02d}") for n in range(3)] == list(COLOURS[:3])
    # a defence besides noise is one of the others; of two plain ones neither stands out
    sca = compare([*records(1), *(without(one, "sca", **{"defence.sca.threshold": 0.01}) for one in single)])
    assert colour_of(sca, "sca") == COLOURS[1]
    narrow = {"low": 8.0, "high": 16.0}
    two = compare(
        [without(one, label, **{"defence.bottleneck.channels": narrow[label]}) for one in single for label in narrow]
    )
    assert {colour_of(two, "low"), colour_of(two, "high")} == set(COLOURS[:2])


def test_a_surrogate_of_weight_0_is_noise_alone() -> None:
    silent = [
        replace(one, name=f"off{one.name}", label="off", settings={**one.settings, "train.privacy_weight": 0.0})
        for one in records(1)
        if one.settings["train.privacy_weight"] == 1.0
    ]
    found = compare([*records(1), *silent])
    assert (colour_of(found, "off"), colour_of(found, "m00")) == (PLAIN_COLOUR, COLOURS[0])


def test_one_seed_has_no_bars() -> None:
    root = draw(compare(records(1, seeds=1)))
    assert len(tags(root, "title")) == 3
    assert not [path for path in tags(root, "path") if path.attrib["class"] == "bar"]


def test_runs_that_nobody_attacked_give_an_empty_figure_that_says_so() -> None:
    bare = replace(records(1)[0], setting=replace(SETTING, mode=NOT_ATTACKED), scores={})
    root = draw(compare([bare]))
    assert [element.text for element in tags(root, "text")] == ["No attacked runs to draw."]


def test_a_long_title_is_broken_into_lines_that_fit_the_panel() -> None:
    setting = replace(SETTING, data="fashion-mini at 28 px (3000 training pictures)")
    root = draw(compare(records(1, setting=setting)))
    lines = [element for element in tags(root, "text") if element.attrib.get("class") == "name"]
    whole = "fashion-mini at 28 px (3000 training pictures), training-time, worst case over all attacks"
    assert " ".join(line.text or "" for line in lines) == whole
    # Helvetica's bold letters are .58 em wide on average: 7 px at this size; the panel ends at 460
    assert all(float(line.attrib["x"]) + 7 * len(line.text or "") <= 460 for line in lines)
    tops = [float(line.attrib["y"]) for line in lines]
    assert tops == sorted(set(tops))


def lowered(accuracy: float) -> Comparison:
    """Five methods of three strengths each, and a sixth of one strength that has this accuracy."""
    weak = [replace(one, accuracy=accuracy) for one in records(6) if one.name.startswith("5-1")]
    return compare([*records(5), *weak])


def test_a_collapsed_method_is_named_below_and_leaves_the_others_their_room() -> None:
    root = draw(lowered(0.1))
    words = [element.text for element in tags(root, "text")]
    assert "m05 (2 seeds), below the picture: 10.0 % at 0.02010" in words
    assert len(tags(root, "title")) == 15
    assert "80" not in words  # the axis is that of 87 to 89 %


def test_a_long_name_in_the_legend_is_set_smaller_and_fits_the_panel() -> None:
    long = "a surrogate whose name says everything that was done to it and then some more"
    found = [replace(one, settings=one.settings | {"surrogate.name": long}) for one in records(1)]
    root = draw(compare([*records(2), *found]))
    sizes = {}
    for element in tags(root, "text"):
        if (element.text or "").endswith("(2 seeds)"):
            size = float(element.attrib.get("style", "font-size:12px").removeprefix("font-size:").removesuffix("px"))
            # the letters of a wide font, DejaVu Sans, are .58 em wide on average
            assert float(element.attrib["x"]) + 0.58 * size * len(element.text or "") <= 460
            sizes[element.text] = size
    assert sizes["m00 (2 seeds)"] == sizes["m01 (2 seeds)"] == 12
    assert len(sizes) == 3


def test_what_is_not_far_below_is_drawn() -> None:
    root = draw(lowered(0.86))
    assert len(tags(root, "title")) == 16
    assert not [element for element in tags(root, "text") if "below the picture" in (element.text or "")]


def test_a_method_with_one_weak_strength_keeps_its_curve() -> None:
    root = draw(compare([replace(one, accuracy=0.1) if one.name.startswith("5-3") else one for one in records(6)]))
    assert len(tags(root, "title")) == 18
