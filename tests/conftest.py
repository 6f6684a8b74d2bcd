"""Fixtures shared by all tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

# torch is imported where it is used: the process that hands out the tests loads this file, and needs none


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Two workers share two cores: one thread each is faster than two, and sums are reproducible."""
    import torch

    torch.set_num_threads(1)
    threadpool_limits(1)  # of numpy, too
    os.environ["OMP_NUM_THREADS"] = "1"  # of processes that tests start


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with long tests come first: otherwise the last worker may be busy with one while the others have ended.

    Files of a folder stay together: what they share is then made, and imported, by one worker instead of by each.
    """
    long = {item.path for item in items if item.get_closest_marker("slow")}
    place = {folder: place for place, folder in enumerate(dict.fromkeys(item.path.parent for item in items))}
    items.sort(key=lambda item: (item.path not in long, place[item.path.parent]))


def pytest_collection_finish() -> None:
    """Thousands of tests and their libraries stay until the end: looking through them all for litter finds none."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _no_wait_for_the_disk() -> Iterator[None]:
    """Only a power failure tells whether a file has reached the disk; what calls this is tested in test_files.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def _interruptible() -> None:
    """A shell without job control starts what runs in the background deaf to Ctrl-C, and all that it starts, too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def small_data(tmp_path: Path) -> Path:
    """A data set that trains in a moment."""
    from tests.worlds.small_data import write_small_data

    path = tmp_path / "small.npz"
    write_small_data(path)
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium of the test module's own (see `tests/worlds/browser.py`)."""
    from tests.worlds.browser import CHROMIUM, FLAGS, PATIENCE

    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install playwright)")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def pages(browser: Any) -> Any:
    """Its pages, which tests lend one another."""
    from tests.worlds.browser import Pages

    return Pages(browser)


@pytest.fixture
def screenshots(request: pytest.FixtureRequest) -> Path:
    """Where pictures of pages are kept for people to look at."""
    folder = request.config.rootpath / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def keep(screenshots: Path) -> Callable[..., None]:
    """Keep a picture of a page or an element where somebody asks for it: to draw it takes longer than most tests.

    SPLITVEIL_SCREENSHOTS=1 python -m pytest ...
    """

    def take(what: Any, name: str, **options: Any) -> None:
        if os.environ.get("SPLITVEIL_SCREENSHOTS"):
            what.screenshot(path=screenshots / name, **options)

    return take


# The same cases on every machine and in every run: a suite that passes today passes tomorrow. To look for new ones:
# HYPOTHESIS_PROFILE=explore python -m pytest ...
# Neither judges by the clock: a busy machine would fail tests that are right.
PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fixed", derandomize=True, **PATIENT)
settings.register_profile("explore", derandomize=False, **PATIENT)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
