"""A configuration as lines of text, for tables of settings."""

from __future__ import annotations

import json
from typing import Any

from splitveil.core import dotted
from splitveil.experiments.loose import table


def flatten(tree: Any) -> dict[str, str]:
    """A config as `section.key` -> value, in JSON spelling; empty tables are left out."""
    return {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        for key, value in dotted.flatten(table(tree)).items()
        if value != {}
    }
