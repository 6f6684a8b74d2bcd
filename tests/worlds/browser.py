"""The real browser of the browser tests: which program, how it is started, its pages, and the marks of the tests."""

from __future__ import annotations

import os
import shutil
from typing import Any

import pytest

CHROMIUM = os.environ.get("SPLITVEIL_CHROMIUM") or next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
NEEDED = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium found (apt install chromium, or set SPLITVEIL_CHROMIUM)"),
    pytest.mark.slow,
]
PATIENCE = 240_000  # milliseconds until a test gives up waiting for a page; never reached when all is well
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

STORES = "stores"


class Pages:
    """Pages that tests use one after the other: each new one starts processes that take longer than most tests."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser
        self.free: dict[str, list[Any]] = {}
        self.lent: list[tuple[str, Any]] = []
        self.faults: list[str] = []  # what pages wrote to the console since the last `give_back`, and their errors

    def take(
        self, *, width: int, height: int, color_scheme: str = "light", stores: bool = False, **options: Any
    ) -> Any:
        """A page as if nobody had used it; the options are those of a browser context.

        One that stores a choice (theme, language) is nobody else's, before or after.
        """
        kind = STORES if stores else repr(sorted(options.items()))
        free = self.free.setdefault(kind, [])
        page = free.pop() if free else self._new(options)
        self.lent.append((kind, page))
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(media="screen", color_scheme=color_scheme)
        return page

    def _new(self, options: dict[str, Any]) -> Any:
        context = self.browser.new_context(**options)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("console", lambda message: self.faults.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        return page

    def give_back(self) -> list[str]:
        """Make all pages that were taken fit for the next test; what went wrong on them."""
        for kind, page in self.lent:
            if kind == STORES:
                page.context.close()
                continue
            for other in page.context.pages:
                if other != page:
                    other.close()
            page.context.unroute_all()
            page.mouse.move(0, 0)  # where the pointer of a new page is
            if page.evaluate("localStorage.length"):
                self.faults.append("the page stored a choice: take one with stores=True")
            if not page.url.startswith("file:"):
                page.goto("about:blank")  # a page of a server would go on asking it
            self.free[kind].append(page)
        faults = [*self.faults]
        self.lent.clear()
        self.faults.clear()
        return faults
