"""The report in a real browser: opened from disk, with every network request refused.

With SPLITVEIL_SCREENSHOTS=1 pictures of pages are kept in build/screenshots for people to look at.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from explaining import FIGURES, add_explain, explain_tree
from PIL import Image
from tests.worlds.browser import NEEDED

from splitveil.report import build_report
from splitveil.report.figures.files import write_figures

pytestmark = NEEDED


@pytest.fixture
def open_report(pages: Any, demo: Path, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Open the report of some runs; at the end nothing may have gone wrong, and no request may have been made."""
    opened, faults = [], []

    def visit(*runs: Path, width: int = 1280, height: int = 900, lang: str = "en", **options: Any) -> Any:
        out = build_report(list(runs) or [demo], tmp_path / f"page{len(opened)}.html", lang=lang)
        opened.append(out)
        page = pages.take(width=width, height=height, offline=True, **options)

        def refuse(route: Any) -> None:
            if route.request.url.startswith("file:"):
                route.continue_()
            else:
                faults.append(f"request to {route.request.url}")
                route.abort()

        page.context.route(lambda url: not url.startswith("data:"), refuse)
        page.goto(out.as_uri())
        return page

    yield visit
    faults += pages.give_back()
    assert faults == []


@pytest.fixture
def explained(demo: Path) -> Path:
    add_explain(demo / "defended")
    return demo


def visible(page: Any, selector: str) -> int:
    return page.locator(selector).locator("visible=true").count()  # one question, not one for each element


def test_opens_from_disk(open_report, keep):
    page = open_report()
    assert "SSIM 0.41" in page.inner_text(".verdict")
    assert page.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth > 0)")
    # The parser of the browser agrees with ours: nothing was moved or dropped while reading.
    assert page.evaluate("document.querySelectorAll('p div, p table, p section').length") == 0
    keep(page, "report-light.png", full_page=True)


def test_a_name_under_a_picture_is_not_broken_inside_a_word(open_report):
    lines = """[...document.querySelectorAll(".card figcaption b")].flatMap((name) => {
        const words = document.createTreeWalker(name, NodeFilter.SHOW_TEXT), found = [];
        while (words.nextNode()) {
            const range = document.createRange();
            range.selectNodeContents(words.currentNode);
            if (words.currentNode.data.trim() === "undefended") found.push(range.getClientRects().length);
        }
        return found;
    })"""
    page = open_report()
    for width in (390, 1024, 1200, 1280, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        assert set(page.evaluate(lines)) - {0} == {1}, width  # 0: hidden


def test_first_screen_holds_verdict_pictures_and_frontier(open_report):
    page = open_report(width=1440)
    for selector in (".verdict", ".card img", "#frontier svg"):
        box = page.query_selector(selector).bounding_box()
        assert 0 <= box["y"] < 700, selector


def test_pictures_are_pixelated(open_report):
    page = open_report()
    assert page.evaluate("getComputedStyle(document.querySelector('.card img')).imageRendering") == "pixelated"


def test_gallery_filters_by_class(open_report):
    page = open_report()
    assert visible(page, ".card") == 4
    page.click("#all-cards")
    assert visible(page, ".card") == 8
    page.select_option("#class-filter", "Dress")
    cards = [card for card in page.query_selector_all(".card") if card.is_visible()]
    assert [card.get_attribute("data-class") for card in cards] == ["Dress"]
    assert page.inner_text("#card-count") == "1 / 8"
    page.select_option("#class-filter", "")
    assert visible(page, ".card") == 8


def test_a_row_can_be_enlarged_with_the_keyboard(open_report):
    page = open_report()
    page.focus(".enlarge")
    page.keyboard.press("Enter")
    assert page.is_visible("#zoom")
    assert visible(page, "#zoom img") == 3
    page.keyboard.press("Escape")
    assert not page.is_visible("#zoom")


@pytest.mark.parametrize("system", ["light", "dark"])
def test_theme_follows_the_system_and_the_button(open_report, keep, system):
    page = open_report(color_scheme=system, stores=True)

    def brightness() -> int:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, colour.removeprefix("rgb(").removesuffix(")").split(",")))

    assert (brightness() > 380) == (system == "light")
    keep(page, f"report-system-{system}.png")
    page.click("#theme")
    assert (brightness() > 380) == (system == "dark")
    page.reload()
    assert (brightness() > 380) == (system == "dark"), "the choice is remembered"


def test_language_button(open_report, keep):
    page = open_report(stores=True)
    page.click("#language")
    assert page.get_attribute("html", "lang") == "zh"
    assert "在 87.1\u00a0% 的准确率下" in page.inner_text(".verdict")
    assert "What the attacker sees" not in page.inner_text("body")
    assert page.inner_text("#class-filter option >> nth=0") == "全部类别"
    # Every attribute that has a Chinese form now shows it.
    missed = """[...document.querySelectorAll('*')].flatMap((e) => [...e.attributes]
        .filter((a) => a.name.startsWith('data-zh-') && a.name !== 'data-zh-data-text'
                       && e.getAttribute(a.name.slice(8)) !== a.value).map((a) => a.name))"""
    assert page.evaluate(missed) == []
    keep(page, "report-chinese.png", full_page=True)
    page.click("#language")
    assert page.get_attribute("html", "lang") == "en"
    assert "What the attacker sees" in page.inner_text("body")


def test_page_can_start_in_chinese(open_report):
    page = open_report(lang="zh")
    assert "攻击者看到了什么" in page.inner_text("body")
    assert page.get_attribute(".chart", "aria-label").startswith("攻击者图片的相似度")


def test_hiding_a_method_removes_it_everywhere(open_report):
    page = open_report()
    before = visible(page, "[data-m='1']")
    assert before > 10
    others = visible(page, "[data-m='0']")
    page.click("[data-toggle='1']")
    assert visible(page, "[data-m='1']") == 0
    assert visible(page, "[data-m='0']") == others
    page.click("[data-toggle='1']")
    assert visible(page, "[data-m='1']") == before


def test_frontier_switches_metric_and_tells_values(open_report):
    page = open_report()
    assert visible(page, "#frontier .pane") == 1
    page.focus("[data-pane-of='mse'] .spot.m-open")
    assert "MSE 0.0125" in page.inner_text("#tip")
    page.click("[data-pane='ssim']")
    assert page.is_visible("[data-pane-of='ssim']")
    assert not page.is_visible("[data-pane-of='mse']")
    page.hover("[data-pane-of='ssim'] .spot.m1 .hit")
    assert "SSIM 0.412" in page.inner_text("#tip")


def test_line_chart_tells_the_values_under_the_pointer(open_report, demo):
    page = open_report()
    chart = page.query_selector("#training svg.lines")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.955, box["y"] + box["height"] / 2)
    tip = page.inner_text("#tip").splitlines()
    assert tip[0] == "12"  # the last epoch
    assert tip[1:] == ["undefended: 88.9 %", "gmm (corrected), weight 16, noise 0.025: 87.1 %"]


def test_no_number_about_the_worst_tenth_is_hidden_on_a_desktop(open_report):
    table = open_report(width=1280).query_selector("#leakage .scroll")
    assert table.evaluate("(e) => e.scrollWidth <= e.clientWidth")


def test_no_sideways_scrolling_on_small_screens(open_report, keep):
    page = open_report(height=844, device_scale_factor=2, has_touch=True)
    for width in (320, 390, 768):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        keep(page, f"report-{width}.png", full_page=True)


@pytest.mark.parametrize("stored", [False, True])
def test_print_is_light_and_without_controls(open_report, explained, screenshots, stored):
    page = open_report(explained, color_scheme="dark", width=703)  # the width of A4 within its margins
    if stored:
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.emulate_media(media="print")
    assert (
        page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    )  # the margins of the paper
    assert page.evaluate("document.documentElement.scrollWidth") <= 703
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for selector in (".controls", ".switch", "#theme", "#language", ".copy"):
        assert visible(page, selector) == 0, selector
    pdf = page.pdf(path=screenshots / "report-print.pdf", format="A4", print_background=True)
    assert pdf.startswith(b"%PDF")


@pytest.mark.parametrize(("count", "printed"), [(2, 2), (5, 0)])
def test_where_a_few_runs_come_from_is_printed(open_report, tmp_path, write_run, count, printed):
    for seed in range(count):
        write_run(tmp_path / "some" / f"s{seed}", seed=seed, images=1)
    page = open_report(tmp_path / "some")
    page.evaluate("document.querySelector('details.run').open = true")  # a reader opened this one
    is_open = "document.querySelectorAll('details.run[open]').length"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(is_open) == max(printed, 1)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(is_open) == 1


def test_without_scripts_everything_is_there(open_report):
    page = open_report(java_script_enabled=False)
    assert visible(page, ".card") == 8
    assert visible(page, ".pane") == 2
    assert "SSIM 0.41" in page.inner_text(".verdict")
    assert visible(page, "#theme, #language, .controls, .copy, .enlarge") == 0  # no button that would do nothing


def test_markup_in_names_is_not_executed(open_report, tmp_path, write_run):
    name = "<img src=x onerror=window.pwned=1><script>window.pwned=1<"
    write_run(tmp_path / "evil" / name)
    page = open_report(tmp_path / "evil")
    assert page.evaluate("window.pwned") is None
    assert name in page.inner_text("#runs")


def test_tab_key_reaches_the_controls_in_order(open_report):
    page = open_report()
    seen = []
    for _ in range(20):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id || document.activeElement.className || 'other'"))
    assert seen[0] == "skip"
    assert seen.index("language") < seen.index("theme") < seen.index("class-filter")


def test_heat_maps_and_clouds_tell_what_is_under_the_pointer(open_report, explained):
    page = open_report(explained)
    grid = page.query_selector("#explain [data-grid]")
    grid.scroll_into_view_if_needed()
    box = grid.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + box["height"] * 0.05)
    values, columns = grid.get_attribute("data-v").split(), int(grid.get_attribute("data-grid"))
    assert page.inner_text("#tip").splitlines() == ["T-shirt/top", f"Slot {columns}: {values[columns - 1]}"]
    page.evaluate("document.querySelector('#explain .dots').dispatchEvent(new PointerEvent('pointermove'))")
    assert page.inner_text("#tip") == "T-shirt/top"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_are_drawn_in_the_colours_of_the_theme(open_report, explained, keep, scheme):
    page = open_report(explained, color_scheme=scheme)
    fill = page.evaluate("getComputedStyle(document.querySelector('#explain .cell')).fill")
    assert fill == {"light": "rgb(11, 61, 145)", "dark": "rgb(138, 176, 255)"}[scheme]
    assert visible(page, "#explain .figures svg") == len(FIGURES)
    keep(page.query_selector("#explain"), f"report-explain-{scheme}.png")


def test_figures_switch_language(open_report, explained):
    page = open_report(explained, stores=True)
    page.click("#language")
    assert "代理的内部" in page.inner_text("#explain")
    names = page.evaluate("[...document.querySelectorAll('#explain svg')].map((s) => s.getAttribute('aria-label'))")
    assert all(any("\u4e00" <= letter <= "\u9fff" for letter in name) for name in names)


def test_wide_figures_scroll_inside_themselves_on_a_phone(open_report, explained, keep):
    page = open_report(explained, height=844, device_scale_factor=2)
    for width in (320, 390):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        chart = page.query_selector("#explain .full .chart")
        assert chart.bounding_box()["width"] > width  # readable, not shrunk
        keep(page.query_selector("#explain"), f"report-explain-{width}.png")


def test_capacity_curves_tell_values_on_their_logarithmic_axis(open_report, demo):
    path = demo / "defended" / "audit" / "audit.json"
    audit = json.loads(path.read_text())
    strong = {"mse": 0.02, "curve": [[1e5, 0.05], [1e6, 0.04], [1e7, 0.03]], "tried": {"a": 0.05, "b": 0.04}}
    audit["attacks"] = {"decoder_strong": strong}
    path.write_text(json.dumps(audit))
    page = open_report(demo / "defended")
    chart = page.query_selector("svg[data-log]")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    low, high, start, end, width = map(float, chart.get_attribute("data-x").split())
    share = math.log(1e6 / low) / math.log(high / low)
    page.mouse.move(box["x"] + (start + share * (end - start)) * box["width"] / width, box["y"] + box["height"] / 2)
    tip = page.inner_text("#tip").splitlines()
    assert tip[0] == "1000000"
    assert tip[1].endswith(": 0.04")


@pytest.mark.parametrize("surrogate", ["slot_gated", "gmm"])  # "component" is longer than "slot"
def test_stand_alone_figures_open_in_a_browser(surrogate, pages, explained, tmp_path, keep):
    add_explain(explained / "defended", explain_tree() | {"surrogate": surrogate})
    page = pages.take(width=800, height=600, offline=True)
    for name, path in write_figures(explained / "defended", tmp_path / "figures").items():
        page.goto(path.as_uri())
        # every word lies inside the picture
        outside = page.evaluate(
            """() => { const box = document.documentElement.viewBox.baseVal;
            return [...document.querySelectorAll('text')].filter((t) => { const b = t.getBoundingClientRect();
              return b.left < -0.5 || b.top < -0.5 || b.right > box.width + 0.5 || b.bottom > box.height + 0.5;
            }).map((t) => t.textContent); }"""
        )
        assert outside == [], name
        keep(page, f"figure-{surrogate}-{name}.png")
    assert pages.give_back() == []


def edge_shade(page: Any, element: Any) -> int:
    """How much darker the right edge of an element is than its middle, above the first line of text."""
    box = element.bounding_box()
    area = {"x": box["x"], "y": box["y"] + 3, "width": box["width"], "height": 1}
    row = Image.open(io.BytesIO(page.screenshot(clip=area, full_page=True))).convert("L")
    return row.getpixel((row.width // 2, 0)) - row.getpixel((row.width - 2, 0))


def test_tables_that_go_on_beyond_the_edge_say_so_on_a_phone(open_report, keep):
    page = open_report(width=390, height=800)
    table = page.query_selector("#runs .scroll")
    assert table.evaluate("(e) => e.scrollWidth > e.clientWidth + 20")
    assert edge_shade(page, table) > 20
    keep(page.query_selector("#runs"), "report-runs-390.png")
    table.evaluate("(e) => { e.scrollLeft = e.scrollWidth; }")
    assert abs(edge_shade(page, table)) <= 2


def test_long_names_under_pictures_are_whole(open_report, tmp_path, write_run, keep):
    run = write_run(tmp_path / "long" / "a")
    (run / "cell.json").write_text('{"method": "slot_gated with infoscissors_and_label_smoothing"}')
    write_run(tmp_path / "long" / "b", surrogate=None)
    page = open_report(tmp_path / "long", width=390, height=800)
    names = [name for name in page.query_selector_all(".shots figcaption b") if name.is_visible()]
    assert any("label_smoothing" in name.inner_text() for name in names)
    keep(page.query_selector("#gallery"), "report-names-390.png")
    for name in names:
        assert name.evaluate("(e) => e.scrollWidth <= e.clientWidth && getComputedStyle(e).whiteSpace == 'normal'")
