"""The place where fetched data sets live: one safetensors file for each, complete or absent, never a pickle."""

from __future__ import annotations

import os
from pathlib import Path


def data_root() -> Path:
    """`SPLITVEIL_DATA` where it is set, else a folder in the user's cache."""
    given = os.environ.get("SPLITVEIL_DATA")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "splitveil" / "data"
