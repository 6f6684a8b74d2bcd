"""Where a number came from: versions, revision, hardware, and the short signature printed beside every score."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from splitveil import __version__
from splitveil.core.code_version import code_version
from splitveil.core.config import Config
from splitveil.core.pins import DIGITS
from splitveil.core.plug_ins import pinned, plug_ins_of

PACKAGES = ("torch", "numpy", "scikit-learn", "scipy", "safetensors", "pydantic")


def now() -> str:
    """UTC time in ISO format, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def environment() -> dict[str, Any]:
    """Versions and hardware, without anything that identifies the person or the machine's paths."""
    import torch

    versions = {"python": platform.python_version(), "splitveil": __version__}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    hardware = {
        "platform": platform.platform(terse=True),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
    return {"versions": versions, "hardware": hardware, "revision": git_revision(), "code": code_version()}


def git_revision() -> str | None:
    """Revision of the source tree this package runs from, '+' appended when it has local changes."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    try:
        revision = _git(root, "rev-parse", "--short=12", "HEAD")
        return revision + ("+" if _git(root, "status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()


def config_digest(config: Config) -> str:
    """Short checksum of a resolved configuration."""
    return hashlib.sha256(config.to_toml().encode()).hexdigest()[:DIGITS]


def torch_version() -> str:
    """Without what follows a plus sign: the same release for a CPU and for a GPU counts as one."""
    return metadata.version("torch").partition("+")[0]


def signature(config: Config, **parts: str | int) -> str:
    """One line that pins what produced a number.

    Example: ``splitveil:0.1.0|config:3fa9c21b07|seed:125|data:91bd03aa|torch:2.13.0|python:3.11``; after `data`
    comes `plug_ins` where plug-ins of other packages train the model: a checksum of their code.
    """
    fields: dict[str, str | int] = {"splitveil": __version__, "config": config_digest(config), "seed": config.seed}
    fields |= parts | pinned(plug_ins_of(config))
    fields["torch"] = torch_version()
    fields["python"] = f"{sys.version_info.major}.{sys.version_info.minor}"
    return "|".join(f"{key}:{value}" for key, value in fields.items())
