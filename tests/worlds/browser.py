"""The real browser of the browser tests: which program, how it is started, and the marks of tests that need it."""

from __future__ import annotations

import os
import shutil

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
