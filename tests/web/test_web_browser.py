"""The app in a real browser: every request that is not to its own server is refused and counts as a fault.

With SPLITVEIL_SCREENSHOTS=1 pictures of pages are kept in build/screenshots for people to look at.
"""

from __future__ import annotations

import io
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from PIL import Image
from tests.web.conftest import append_epoch, wait, write_audit, write_run
from tests.worlds.browser import NEEDED, PATIENCE

from splitveil.core.locks import only_writer
from splitveil.training.loaded_run import load_run
from splitveil.web.app import create_app
from splitveil.web.leak import decoder as decoder_module

pytestmark = NEEDED
EVIL = "<img src=x onerror=window.pwned=1><script>window.pwned=1<"


class Site:
    """The app on a free port, in a thread."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.app = create_app(root)
        self.server = uvicorn.Server(uvicorn.Config(self.app, port=0, log_level="warning", ws="none", lifespan="on"))
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        wait(lambda: self.server.started)
        port = self.server.servers[0].sockets[0].getsockname()[1]
        self.address = f"http://127.0.0.1:{port}/"
        wait(lambda: self.app.state.services.index.scanned)

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(timeout=30)


@pytest.fixture(scope="module")
def shared(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Runs of all kinds, for tests that change nothing."""
    root = tmp_path_factory.mktemp("site") / "runs"
    shutil.copytree(trained, root)
    for name, sigma, mse in (("undefended", 0.0, 0.01), ("noise", 0.2, 0.03), ("grid/more-noise", 0.4, 0.05)):
        run = write_run(root / name, accuracy=0.9 - sigma / 4, defence={"noise": {"sigma": sigma}})
        write_audit(run, mse, 0.9 - 10 * mse)
    write_run(root / EVIL, status="failed")
    (root / "half").mkdir()
    (root / "half" / "config.toml").write_text("[[[", encoding="utf-8")
    options = decoder_module.OPTIONS
    decoder_module.OPTIONS = options.model_copy(update={"epochs": 2})
    site = Site(root)
    yield site
    site.close()
    decoder_module.OPTIONS = options


@pytest.fixture
def visit(pages: Any) -> Iterator[Callable[..., Any]]:
    """Open a page of a site; at the end nothing may have gone wrong, and nobody else may have been asked."""
    faults = []

    def go(site: Site, path: str = "", *, width: int = 1280, height: int = 900, **options: Any) -> Any:
        page = pages.take(width=width, height=height, locale="en-GB", **options)

        def refuse(route: Any) -> None:
            if route.request.url.startswith(site.address):
                route.continue_()
            else:
                faults.append(f"request to {route.request.url}")
                route.abort()

        page.context.route(lambda url: not url.startswith(("data:", "blob:")), refuse)
        page.goto(site.address + path)
        return page

    yield go
    faults += pages.give_back()
    assert faults == []


def until(page: Any, condition: str) -> None:
    """Playwright's own way evaluates a string inside the page, which the page's policy forbids."""
    wait(lambda: page.evaluate(condition))


def row(page: Any, name: str) -> Any:
    return page.locator(".runs tbody tr", has=page.locator("a", has_text=name)).first


def test_an_audit_alone_speaks_of_no_training(visit, tmp_path):
    (tmp_path / "theirs").mkdir()
    write_audit(tmp_path / "theirs", 0.01, 0.8)
    site = Site(tmp_path)
    try:
        page = visit(site, "#/run?id=theirs")
        page.wait_for_selector("#tile-epochs")
        assert page.inner_text(".run-head .status") == "audit only"
        assert page.inner_text("#tile-epochs").strip() == "\u2013"
        assert page.locator("#curves").count() == 0
        told = page.inner_text("main")  # no single attack has these numbers: each picture has its own closest one
        assert "Worst case, SSIM" in told
        assert "Worst case, MSE" in told
        assert "The worst case above takes, for each picture, the attack that came closest." in told
    finally:
        site.close()


def test_list_opens_filters_and_sorts(visit, shared, keep):
    page = visit(shared)
    page.wait_for_selector(".runs tbody tr")
    assert page.inner_text("#run-count") == "6 runs"
    about = page.locator(".about", has=page.locator(".where"))
    assert about.inner_text().startswith("grid/ · ")  # then the method
    keep(page, "ui-list.png", full_page=True)
    page.fill("#search", "noise")
    until(page, "document.querySelector('#run-count').textContent !== '6 runs'")
    page.fill("#search", "more-noise")
    until(page, "document.querySelector('#run-count').textContent === '1 run'")
    page.fill("#search", "")
    page.select_option("#filter-status", "failed")
    until(page, "document.querySelector('#run-count').textContent === '1 run'")
    page.select_option("#filter-status", "")
    until(page, "document.querySelector('#run-count').textContent === '6 runs'")
    page.click("th button:has-text('Accuracy')")
    until(page, "document.querySelector('[aria-sort=descending]').textContent.startsWith('Accuracy')")
    numbers = (
        "[...document.querySelectorAll('.runs tbody td:nth-child(5)')].map((cell) => parseFloat(cell.textContent))"
    )

    def known() -> list[float]:
        return [number for number in page.evaluate(numbers) if number == number]

    wait(lambda: known() == sorted(known(), reverse=True))
    assert len(known()) == 5, "one folder holds no number"


def test_markup_in_names_is_shown_not_executed(visit, shared):
    page = visit(shared)
    page.wait_for_selector(".runs tbody tr")
    link = page.locator(".runs tbody a", has_text="<img src=x")
    assert EVIL in page.inner_text(".runs")
    link.click()
    page.wait_for_selector("#run-title")
    page.wait_for_selector("#curves svg")
    assert page.inner_text("#run-title") == EVIL
    assert page.evaluate("window.pwned") is None
    assert page.locator("img[src=x]").count() == 0


def test_what_spoils_a_run_stands_above_its_numbers(visit, tmp_path):
    folder = write_run(tmp_path / "mine", accuracy=0.8)
    rows = folder / "metrics.jsonl"
    rows.write_text(rows.read_text() + json.dumps({"epoch": 7, "test_accuracy": 0.7}) + "\n")
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps(result | {"works": False}))
    site = Site(tmp_path)
    try:
        page = visit(site, "#/run?id=mine")
        page.wait_for_selector("#tile-accuracy")
        edited, idle = page.locator(".run-head .alarm").all()
        assert "result.json states another accuracy than metrics.jsonl" in edited.inner_text()
        assert "no better than always naming the most frequent class" in idle.inner_text()
        assert idle.bounding_box()["y"] < page.locator("#tile-accuracy").bounding_box()["y"]
    finally:
        site.close()


def test_an_endpoints_accuracy_is_named_as_the_auditors(visit, tmp_path):
    """In the list, beside the run, in the comparison and in its figure; nowhere beside a run's own accuracy."""
    (tmp_path / "endpoint").mkdir()
    write_audit(tmp_path / "endpoint", 0.03, 0.4, accuracy=0.71, accuracy_of="auditor")
    write_audit(write_run(tmp_path / "own", accuracy=0.8), 0.04, 0.3)
    site = Site(tmp_path)
    try:
        page = visit(site)
        page.wait_for_selector(".runs tbody tr")
        assert "71.0\xa0%\nauditor's classifier" in row(page, "endpoint").inner_text()
        assert "auditor" not in row(page, "own").inner_text()
        for name in ("endpoint", "own"):
            row(page, name).locator("input").check()
        page.click("#compare")
        page.wait_for_selector(".frontier .spot")
        assert page.inner_text("#numbers").count("auditor's classifier") == 1
        tips = []
        for spot in page.locator(".frontier .spot").all():
            spot.focus()
            tips.append(page.inner_text("#tip"))
        assert sorted("71.0\xa0% (auditor's classifier)" in tip for tip in tips) == [False, True]
        page.locator("#numbers a", has_text="endpoint").click()
        page.wait_for_selector("#tile-accuracy")
        assert "auditor's classifier" in page.inner_text("#tile-accuracy")
    finally:
        site.close()


def test_ticked_runs_are_compared(visit, shared, keep):
    page = visit(shared)
    page.wait_for_selector(".runs tbody tr")
    for name in ("undefended", "more-noise"):
        row(page, name).locator("input").check()
    assert page.inner_text("#compare") == "Compare 2"
    page.click("#compare")
    page.wait_for_selector(".frontier .spot")
    assert page.locator(".frontier .spot").count() == 2
    assert page.locator("#curves .curve").count() >= 8
    assert "defence.noise.sigma" in page.inner_text("#settings")
    keep(page, "ui-compare.png", full_page=True)
    page.focus(".frontier .spot >> nth=0")
    assert "MSE" in page.inner_text("#tip")
    page.click(".switch button:has-text('SSIM')")
    page.focus(".frontier .spot >> nth=0")
    assert "SSIM" in page.inner_text("#tip")
    page.click(".legend button >> nth=1")
    assert page.locator(".frontier .spot").count() == 1
    page.click("button:has-text('Build a report')")
    with page.context.expect_page() as opened:
        page.click(".report-ready a")
    report = opened.value
    report.wait_for_selector(".verdict")
    assert "accuracy" in report.inner_text(".verdict")


def test_live_run_updates_by_itself(visit, trained, tmp_path, keep):
    root = tmp_path / "runs"
    shutil.copytree(trained, root)
    run = root / "small"
    (run / "result.json").unlink()
    (run / "checkpoints" / "model.safetensors").unlink()
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    (run / "manifest.json").write_text(json.dumps(manifest | {"status": "running", "ended": None}), encoding="utf-8")
    config = (run / "config.toml").read_text(encoding="utf-8").replace("epochs = 3", "epochs = 9")
    (run / "config.toml").write_text(config, encoding="utf-8")
    with only_writer(run):
        site = Site(root)
        try:
            page = visit(site, "#/run?id=small")
            page.wait_for_selector(".live-picture")
            assert page.inner_text("#tile-epochs").startswith("3")
            assert "after epoch 3" in page.inner_text(".live-score")
            own = len(load_run(trained / "small").parts.aux)
            assert f"least squares on {own} pictures" in page.inner_text("#live")
            points = "document.querySelector('#curves polyline').getAttribute('points').split(' ').length"
            assert page.evaluate(points) == 3
            for epoch in (4, 5):
                append_epoch(run, epoch)
            until(page, f"{points} === 5")
            until(page, "document.querySelector('#tile-epochs').textContent.startsWith('5')")
            state = next(iter((run / "checkpoints").glob("state-*.safetensors")))
            shutil.copy(state, tmp_path / "whole")  # the app looks all the time: it must not see half a file
            (tmp_path / "whole").rename(run / "checkpoints" / "state-000005.safetensors")
            until(page, "document.querySelector('.live-score').textContent.includes('after epoch 5')")
            page.wait_for_selector("#live svg")
            keep(page, "ui-live.png", full_page=True)
            page.goto(site.address)
            page.wait_for_selector("td .status.running")
        finally:
            site.close()


def test_slider_changes_the_pictures(visit, shared, keep):
    page = visit(shared, "#/leak?id=small")
    page.wait_for_selector("#picture-decoder")
    assert page.inner_text("#sigma") == "0.05"
    source = "document.querySelector('#picture-{}').src"
    before = {name: page.evaluate(source.format(name)) for name in ("original", "feature", "linear", "decoder")}
    page.focus("#noise")
    page.keyboard.press("End")
    until(page, f"{source.format('linear')} !== {json.dumps(before['linear'])}")
    until(page, f"{source.format('feature')} !== {json.dumps(before['feature'])}")
    assert page.evaluate(source.format("original")) == before["original"]
    page.click("button:has-text('Back to the run')")
    until(page, f"{source.format('linear')} === {json.dumps(before['linear'])}")
    page.click("button:has-text('Send again')")
    until(page, f"{source.format('feature')} !== {json.dumps(before['feature'])}")
    page.click(".strip button >> nth=1")
    until(page, f"{source.format('original')} !== {json.dumps(before['original'])}")
    assert page.locator(".classes li").count() == 3
    page.wait_for_selector("#leak-accuracy polyline")
    keep(page, "ui-leak.png", full_page=True)


def test_own_picture_takes_the_place_of_the_other(visit, shared):
    page = visit(shared, "#/leak?id=small")
    page.wait_for_selector("#picture-linear")
    before = page.evaluate("document.querySelector('#picture-original').src")
    buffer = io.BytesIO()
    Image.effect_noise((300, 200), 90).save(buffer, "JPEG")
    page.set_input_files("#file", {"name": "mine.jpg", "mimeType": "image/jpeg", "buffer": buffer.getvalue()})
    page.wait_for_selector("#drop img")
    until(page, f"document.querySelector('#picture-original').src !== {json.dumps(before)}")


def test_what_is_no_picture_is_told_in_one_sentence(browser, shared):
    """Not with `visit`: Chromium writes every refused request to the console."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(shared.address + "#/leak?id=small")
    page.wait_for_selector("#picture-linear")
    page.set_input_files("#file", {"name": "x.png", "mimeType": "image/png", "buffer": b"no picture"})
    page.wait_for_selector(".leak-table .alarm")
    assert "not a picture that can be read" in page.inner_text(".leak-table .alarm")
    context.close()


def test_form_shows_errors_at_the_field(visit, shared, keep):
    page = visit(shared, "#/start")
    page.wait_for_selector(".recipe.chosen")
    page.fill("[id='train.epochs']", "0")
    page.wait_for_selector("[id='train.epochs-error']")
    assert "greater than or equal to 1" in page.inner_text("[id='train.epochs-error']")
    page.fill("[id='train.epochs']", "3")
    page.wait_for_selector("[id='train.epochs-error']", state="detached")
    page.fill("#name", "../outside")
    page.click("#start-button")
    page.wait_for_selector("#name-error")
    keep(page, "ui-start.png", full_page=True)


@pytest.mark.parametrize(
    "path", ["", "#/run?id=small", "#/compare?id=noise&id=undefended", "#/start", "#/leak?id=small"]
)
def test_small_screens_scroll_one_way_only(visit, shared, keep, path):
    page = visit(shared, path, width=390, height=844, device_scale_factor=2, has_touch=True)
    page.wait_for_selector("table, .recipe.chosen, #picture-linear")
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    name = path.removeprefix("#/").partition("?")[0] or "list"
    keep(page, f"ui-{name}-phone.png", full_page=True)


def test_dark_and_chinese(visit, shared, keep):
    page = visit(shared, "#/leak?id=small", color_scheme="dark", stores=True)
    page.wait_for_selector("#picture-linear")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#language")
    assert page.get_attribute("html", "lang") == "zh"
    assert page.inner_text("#leak-title").startswith("会泄露什么")
    keep(page, "ui-leak-dark-chinese.png", full_page=True)
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
    page.reload()
    page.wait_for_selector("#picture-linear")
    assert page.get_attribute("html", "lang") == "zh"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark


def test_keyboard_reaches_everything(visit, shared):
    page = visit(shared)
    page.wait_for_selector(".runs tbody tr")
    seen = []
    for _ in range(30):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate(
                "document.activeElement.id || document.activeElement.className || document.activeElement.type"
            )
        )
    assert seen[0] == "skip"
    assert seen.index("language") < seen.index("theme") < seen.index("search") < seen.index("filter-status")
    page.keyboard.press("Space")
    unnamed = """[...document.querySelectorAll('button, a[href], input, select, img, svg.chart')].filter((e) =>
        !(e.textContent.trim() || e.getAttribute('aria-label') || e.alt || e.labels?.length || e.title)).length"""
    assert page.evaluate(unnamed) == 0
