"""A folder that may not be looked into, also for root, whom permissions do not stop."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest


def shut_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies below `folder` can no longer be looked at: what chmod 000 does."""
    look = os.stat

    def stat(path: Any, *args: Any, **options: Any) -> os.stat_result:
        if not isinstance(path, int) and folder in Path(os.fsdecode(path)).parents:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return look(path, *args, **options)

    monkeypatch.setattr(os, "stat", stat)
