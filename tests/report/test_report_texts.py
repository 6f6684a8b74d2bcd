"""Both languages say the same things, every text is used, and colours can be read."""

from __future__ import annotations

import math
import re
import string
from importlib import resources
from pathlib import Path

import pytest

import splitveil.report
from splitveil.audit.budget import SAFE_SIDE
from splitveil.report.audit_sentences import in_chinese
from splitveil.report.texts import TEXTS

SOURCE = "\n".join(p.read_text(encoding="utf-8") for p in Path(splitveil.report.__file__).parent.rglob("*.py"))
# Keys that are put together at run time: f"floor.{name}" and so on.
BUILT = tuple(re.findall(r'f"([a-z_]+\.[a-z_]*)\{', SOURCE)) + tuple(re.findall(r"f'([a-z_]+\.[a-z_]*)\{", SOURCE))


@pytest.mark.parametrize("key", TEXTS)
def test_languages_have_the_same_places(key):
    english, chinese = TEXTS[key]
    assert english
    assert chinese
    places = [{name for _, name, _, _ in string.Formatter().parse(text) if name} for text in (english, chinese)]
    assert places[0] == places[1]


@pytest.mark.parametrize("measure", SAFE_SIDE)
def test_arrows_point_to_the_side_that_budgets_call_safe(measure):
    arrow, other = "↑↓" if SAFE_SIDE[measure] == ">=" else "↓↑"
    for text in TEXTS[f"tile.{measure}"]:
        assert arrow in text
        assert other not in text


def test_every_text_is_used():
    unused = [
        key
        for key in TEXTS
        if f'"{key}"' not in SOURCE.replace("'", '"').replace(f'"{key}": (', "") and not key.startswith(BUILT)
    ]
    assert unused == []


def test_every_key_exists():
    asked = set(re.findall(r"""(?:say|phrase)\(\s*['"]([a-z_]+\.[a-z_]+)['"]""", SOURCE))
    assert asked
    assert asked <= set(TEXTS)


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(first: str, second: str) -> float:
    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def themes() -> dict[str, dict[str, str]]:
    css = resources.files("splitveil.report").joinpath("assets", "report.css").read_text(encoding="utf-8")
    blocks = re.findall(r"(:root[^{]*)\{([^}]*--m7[^}]*)\}", css)
    return {name.strip(): dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", body)) for name, body in blocks}


def test_both_dark_themes_are_the_same():
    dark = [colours for name, colours in themes().items() if "dark" in name or 'light"' in name]
    assert len(dark) >= 2
    assert dark[0] == dark[1]


THEMES = {"light": 0, "dark": 2, "print": 3}  # the second is the dark of the system, equal to the third


@pytest.mark.parametrize("theme", THEMES)
def test_contrast_is_enough_to_read(theme):
    """WCAG AA: 4.5 for text. Method colours carry text too (the badge's letter, the names on the scale)."""
    blocks = list(themes().values())
    assert len(blocks) == 4
    colours = blocks[0] | blocks[THEMES[theme]]  # what paper does not set is as on the light screen
    for ink in ("ink", "quiet", "accent", "open", "floor", *(f"m{n}" for n in range(8))):
        assert contrast(colours[ink], colours["card"]) >= 4.5, ink
    for ink in ("ink", "quiet"):
        assert contrast(colours[ink], colours["page"]) >= 4.5, ink
        assert contrast(colours[ink], colours["soft"]) >= 4.5, ink
    assert contrast(colours["warn-ink"], colours["warn-page"]) >= 4.5
    # WCAG 1.4.11: 3 for what is drawn
    for drawn in ("heat", "warn-line", *(f"k{n}" for n in range(10))):
        assert contrast(colours[drawn], colours["card"]) >= 3.0, drawn


# Machado, Oliveira and Fernandes (2009), full severity: how linear RGB looks to people with two kinds of cones.
EYES = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "no green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "no blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}


def lab(colour: str, eye: str) -> tuple[float, float, float]:
    """CIELAB (D65) of what such an eye sees."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    seen = [min(1.0, max(0.0, sum(w * c for w, c in zip(row, linear, strict=True)))) for row in EYES[eye]]
    matrix = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    x, y, z = (sum(w * c for w, c in zip(row, seen, strict=True)) for row in matrix)
    f = [v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x / 0.9505, y, z / 1.089)]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_of_classes_differ_for_every_eye(theme, eye):
    """A difference of 2.3 can just be seen; small marks need much more."""
    colours = list(themes().values())[THEMES[theme]]
    palette = [lab(colours[f"k{n}"], eye) for n in range(10)]
    for i, first in enumerate(palette):
        for second in palette[:i]:
            assert math.dist(first, second) > 20


def test_figures_on_paper_have_the_colours_of_the_light_page():
    css = resources.files("splitveil.report").joinpath("assets", "figure.css").read_text(encoding="utf-8")
    light = next(iter(themes().values()))
    assert dict(re.findall(r"\.(k\d) \{ color: (#[0-9a-f]{6})", css)) == {f"k{n}": light[f"k{n}"] for n in range(10)}
    assert f".cell {{ fill: {light['heat']}; }}" in css
    assert "var(" not in css


def test_every_attack_and_every_right_has_words():
    from dataclasses import fields

    from splitveil.attacks.base import ThreatModel
    from splitveil.core.catalogue import ATTACKS
    from splitveil.report.sections.attacks import EFFORT

    assert {f"attack.{name}" for name in ATTACKS.names()} <= set(TEXTS)
    assert {f"threat.{field.name}" for field in fields(ThreatModel)} <= set(TEXTS)
    assert {f"effort.{kind}" for kind in EFFORT.values()} <= set(TEXTS)
    assert set(EFFORT) <= set(ATTACKS.names())


def test_what_audits_write_is_known_in_chinese():
    """Sentences as the audit itself makes them, so that a change there is noticed here."""
    import torch

    from splitveil.audit.bounds import bounds, compare_with_attacks
    from splitveil.audit.metrics import PictureScores
    from splitveil.audit.remarks import missing_counter_attacks, warnings
    from splitveil.data.dataset import ImageSet
    from splitveil.models.split import SplitModel

    class Defence(torch.nn.Module):
        counter_attacks = ("average", "refine")

    flat = PictureScores(torch.zeros(3), torch.zeros(3))
    model = SplitModel(torch.nn.Identity(), torch.nn.Identity())
    model.defences["noise"] = Defence()
    curve = [[float(n), 1.0 / n] for n in range(1, 9)]
    told = [*warnings({"decoder": {"curve": curve}}, flat, 3), *missing_counter_attacks(model, set())]
    assert len(told) == 4
    pictures = ImageSet(torch.randint(0, 256, (40, 1, 2, 2), dtype=torch.uint8), torch.arange(40) % 2)
    random = torch.Generator().manual_seed(0)
    model.defences.clear()
    told.append(bounds(model, pictures, pictures, random, None)["reason"])
    from splitveil import defences

    model.defences["noise"] = defences.create("noise", sigma=0.5)
    for entropy in (None, 1e3):
        found = bounds(model, pictures, pictures, random, entropy)
        told += [found["entropy"]["holds_for"], found["entropy"]["note"], found["fisher"]["holds_for"]]
    told += compare_with_attacks(found, {"decoder": {"mse": 1e-9}})["alarm"]
    assert len(told) == 12
    for sentence in told:
        chinese = in_chinese(sentence)
        assert re.search(r"[\u4e00-\u9fff]", chinese), sentence
        assert "{" not in chinese
    assert "average, refine" in in_chinese(told[3])
    assert in_chinese("Something new.") == "Something new."
