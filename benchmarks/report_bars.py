"""The report's bars: a page of 30 runs has under 10 MB, is built in 20 s on 2 cores, and painted in 1 s from disk.

    python benchmarks/report_bars.py runs/demo/defended [--runs 30] [--keep DIR]

The runs are copies of one real run that differ in seed and privacy weight, as those of a sweep do; every copy has
pictures that no other has, since equal pictures would be stored once. Prints a table; the first paint needs playwright
and Chromium.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from PIL import Image

from splitveil.report import build_report

BARS = {"megabytes": 10.0, "build seconds": 20.0, "first paint seconds": 1.0}
SEEDS = 3


def multiply(run: Path, folder: Path, count: int) -> Path:
    """`count` runs below `folder`, made from one: three seeds of each weight."""
    for number in range(count):
        copy = folder / f"run{number:02d}"
        shutil.copytree(run, copy, ignore=shutil.ignore_patterns("checkpoints", "partial"))
        config = (copy / "config.toml").read_text(encoding="utf-8")
        config = re.sub(r"^seed = .*$", f"seed = {number % SEEDS}", config, count=1, flags=re.MULTILINE)
        weight = f"privacy_weight = {1.0 + number // SEEDS}"
        config = re.sub(r"^privacy_weight = .*$", weight, config, count=1, flags=re.MULTILINE)
        (copy / "config.toml").write_text(config, encoding="utf-8")
        for picture in copy.glob("audit/*/*.png"):
            if picture.parent.name != "original":
                _disturb(picture, number)
    return folder


def _disturb(path: Path, seed: int) -> None:
    """Change a few pixels, so that the picture is like the others and yet its own."""
    chance = random.Random(f"{seed}/{path.parent.name}/{path.name}")
    with Image.open(path) as image:
        changed = image.copy()
    for _ in range(20):
        place = (chance.randrange(changed.width), chance.randrange(changed.height))
        grey = chance.randrange(256)
        changed.putpixel(place, grey if changed.mode == "L" else (grey,) * len(changed.getbands()))
    changed.save(path, optimize=True)


def first_paint(page: Path) -> float | None:
    """Seconds from the start of navigation to the first content, opened from disk; None without a browser."""
    chromium = next((path for name in ("chromium", "chromium-browser") if (path := shutil.which(name))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    if chromium is None:
        return None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--headless", "--no-sandbox"])
        tab = browser.new_page()
        tab.goto(page.as_uri())
        entries: list[dict[str, Any]] = tab.evaluate("performance.getEntriesByType('paint').map((e) => e.toJSON())")
        browser.close()
    painted = [entry["startTime"] for entry in entries if entry["name"] == "first-contentful-paint"]
    return painted[0] / 1000 if painted else None


def measure(run: Path, folder: Path, count: int) -> dict[str, float | None]:
    """Build the page of `count` copies of `run` in `folder`."""
    runs = multiply(run, folder / "runs", count)
    began = time.perf_counter()
    page = build_report([runs], folder / "report.html")
    seconds = time.perf_counter() - began
    return {
        "megabytes": page.stat().st_size / 1e6,
        "build seconds": seconds,
        "first paint seconds": first_paint(page),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run folder with an audit")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--keep", type=Path, help="leave runs and page in this folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        found = measure(given.run, given.keep or Path(temporary), given.runs)
    for name, bar in BARS.items():
        value = found[name]
        print(f"{name:<22}" + ("not measured" if value is None else f"{value:8.2f}   bar {bar:g}"))


if __name__ == "__main__":
    main()
