"""Do the files of a run folder still belong together? What signatures and results pin, looked at without torch.

They show a mix-up, or an edit of one file. Whoever rewrites all of them, pins included, is not found out by reading.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CHECKSUM = "splitveil.sha256"  # key in the metadata of a file of weights
SEAL = "sha256"  # key of a page's own checksum
DIGITS = 10  # of a configuration's checksum in a signature
HEADER = 100_000_000  # bytes: safetensors' own limit


def pin(signature: Any, key: str) -> str:
    """One field of a signature; empty where it has none."""
    parts = signature.split("|") if isinstance(signature, str) else []
    return next((part.partition(":")[2] for part in parts if part.startswith(f"{key}:")), "")


def other_settings(config: Path, *signatures: Any) -> bool:
    """Whether a config.toml is not the one that one of the signatures pins; what cannot be read says nothing."""
    try:
        content = config.read_text(encoding="utf-8-sig")  # as written, whatever a copy or an editor made of line ends
        own = hashlib.sha256(content.encode()).hexdigest()[:DIGITS]
        other = any(len(stated := pin(one, "config")) == DIGITS and stated != own for one in signatures)
        if other:  # seldom: parsing takes far longer than the checksum
            tomllib.loads(content)
    except (OSError, ValueError, RecursionError):
        return False
    return other


def other_weights(weights: Path, result: Mapping[str, Any]) -> bool:
    """Whether a file of weights is not the one that a result.json pins; without a file or a pin nobody knows."""
    stated, own = result.get("weights"), stated_checksum(weights)
    return isinstance(stated, str) and own is not None and stated != own


def other_pictures(*signatures: Any) -> bool:
    """Whether signatures pin different pictures, or different parts of them."""
    return len({stated for one in signatures if (stated := pin(one, "data"))}) > 1


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """A page of numbers with the checksum of all that it says."""
    return {**content, SEAL: _checksum(content)}


def intact(content: Mapping[str, Any]) -> bool:
    """Whether a page is as it was sealed."""
    return content.get(SEAL) == _checksum({key: value for key, value in content.items() if key != SEAL})


def stated_checksum(weights: Path) -> str | None:
    """The checksum of its tensors that a file of weights carries; whoever loads the tensors holds them against it."""
    try:
        with weights.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size)) if size <= HEADER else {}
        stated = header["__metadata__"][CHECKSUM]
    except (OSError, ValueError, RecursionError, KeyError, TypeError):  # not there, or not such a file
        return None
    return stated if isinstance(stated, str) else None


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
