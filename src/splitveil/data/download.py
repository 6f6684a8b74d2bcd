"""Fetch official files over the network: whole and with the right checksum, or not at all."""

from __future__ import annotations

import hashlib
import http.client
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from splitveil.core.errors import DataError
from splitveil.data.source import Progress

BLOCK = 1 << 18
TIMEOUT = 60  # seconds without a single byte


@dataclass(frozen=True)
class OfficialFile:
    """A file at the address where its makers publish it, and the MD5 that they publish with it."""

    url: str
    md5: str

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[-1]


def md5(path: Path) -> str:
    """The checksum that the makers of the older data sets publish (it guards against damage, not against malice)."""
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def download(file: OfficialFile, folder: Path, progress: Progress) -> Path:
    """Fetch `file` into `folder` and compare its checksum."""
    path = folder / file.name
    try:
        with urllib.request.urlopen(file.url, timeout=TIMEOUT) as response, path.open("wb") as out:
            length = response.headers.get("Content-Length")
            total = int(length) if length is not None else None
            done = 0
            while block := response.read(BLOCK):
                out.write(block)
                done += len(block)
                progress(f"Fetching {file.name}", done, total)
    except (OSError, ValueError, http.client.HTTPException) as error:
        path.unlink(missing_ok=True)
        raise DataError(
            f"{file.url} could not be fetched: {error}.",
            "Check the network, or fetch the file elsewhere and pass it with --from.",
        ) from None
    found = md5(path)
    if found != file.md5:
        size = path.stat().st_size
        path.unlink()
        raise DataError(
            f"{file.url} is not what was expected: md5 {file.md5}, but these {size:,} bytes have {found}.",
            "The transfer may have been cut; try again.",
        )
    return path
