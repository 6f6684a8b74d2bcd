"""Both languages say the same things, every text is used, and colours can be read."""

from __future__ import annotations

import re
import string
from importlib import resources
from pathlib import Path

import pytest

import splitveil.report
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


@pytest.mark.parametrize("theme", [":root", ':root[data-theme="dark"]'])
def test_contrast_is_enough_to_read(theme):
    """WCAG AA: 4.5 for text. Method colours carry text too (the badge's letter, the names on the scale)."""
    colours = themes()[theme]
    for ink in ("ink", "quiet", "accent", "open", "floor", *(f"m{n}" for n in range(8))):
        assert contrast(colours[ink], colours["card"]) >= 4.5, ink
    for ink in ("ink", "quiet"):
        assert contrast(colours[ink], colours["page"]) >= 4.5, ink
        assert contrast(colours[ink], colours["soft"]) >= 4.5, ink
    assert contrast(colours["warn-ink"], colours["warn-page"]) >= 4.5
