"""The page of thirty runs, made from one as benchmarks/report_bars.py makes them; that script measures times too."""

from __future__ import annotations

from types import ModuleType

import pytest
from explaining import add_explain
from tests.worlds.scripts import load_script


@pytest.fixture(scope="module")
def bars() -> ModuleType:
    return load_script("benchmarks/report_bars.py")


def test_thirty_runs_fit_into_the_bar(bars, tmp_path, write_run, build):
    one = add_explain(write_run(tmp_path / "one", images=6, side=32, mode="RGB", epochs=40))
    page = build(bars.multiply(one, tmp_path / "thirty", 30))
    assert page.faults == []
    assert len(page.source.encode()) < bars.BARS["megabytes"] * 1e6
    methods = [attrs for attrs in page.named("button") if "data-toggle" in attrs]
    assert len(methods) == 10  # three seeds each
    cards = [attrs for attrs in page.named("article") if attrs["class"] == "card"]
    assert len(cards) == 6
    # each method brings a picture of its own; the originals are stored once
    sources = [attrs["src"] for attrs in page.named("img")]
    assert len(sources) == len(set(sources)) == 6 * 11
    # 30 runs in the tables, figures for each method
    assert page.text("folder").count("run") >= 30
    assert page.source.count('<figure class="plot full"') >= 10
