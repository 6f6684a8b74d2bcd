"""The files inside a folder, a tar or a zip, one after the other, without unpacking anything to disk."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from splitveil.core.errors import DataError


@dataclass(frozen=True)
class Member:
    """One file: its path inside, its size in bytes, and how to read it."""

    path: PurePosixPath
    size: int
    read: Callable[[], bytes]


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn every way in which a file can be unreadable into one sentence that names it."""
    try:
        yield
    except (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile) as error:
        detail = str(error).rstrip(".") or type(error).__name__
        raise DataError(f"{path} is damaged or truncated: {detail}.", "Fetch or copy it again.") from None


def members(path: Path) -> Iterator[Member]:
    """All regular files of a folder, tar (any compression) or zip, in the order in which they lie there.

    A member must be read before the next one is asked for: a compressed tar only goes forward.
    """
    if path.is_dir():
        yield from _folder_members(path)
    elif not path.exists():
        raise DataError(f"There is no file or folder {path}.")
    elif zipfile.is_zipfile(path):
        yield from _zip_members(path)
    elif path.suffix in (".tar", ".tgz") or ".tar." in path.name:
        yield from _tar_members(path)
    else:
        raise DataError(
            f"{path} is neither a folder nor a tar or zip archive.", "Give the archive as it was published."
        )


def _folder_members(path: Path) -> Iterator[Member]:
    for file in sorted(path.rglob("*")):
        if file.is_file():
            yield Member(
                PurePosixPath(file.relative_to(path).as_posix()), file.stat().st_size, _safe(path, file.read_bytes)
            )


def _zip_members(path: Path) -> Iterator[Member]:
    with reading(path):
        archive = zipfile.ZipFile(path)
    with archive:
        for entry in archive.infolist():
            if not entry.is_dir():
                yield Member(PurePosixPath(entry.filename), entry.file_size, _safe(path, archive.read, entry))


def _tar_members(path: Path) -> Iterator[Member]:
    with reading(path):
        archive = tarfile.open(path)  # noqa: SIM115 - closed below; the two steps need different care
    with archive:
        while True:
            with reading(path):
                entry = archive.next()
            if entry is None:
                return
            if entry.isfile():
                yield Member(PurePosixPath(entry.name), entry.size, _safe(path, _read_tar, archive, entry))


def _read_tar(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(entry)
    assert file is not None, "only regular files are listed"
    return file.read()


def _safe(path: Path, read: Callable[..., bytes], *arguments: object) -> Callable[[], bytes]:
    def call() -> bytes:
        with reading(path):
            return read(*arguments)

    return call


def gunzip(content: bytes, path: Path, most: int) -> bytes:
    """Decompress, refusing to produce more than `most` bytes."""
    with reading(path), gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        plain = file.read(most + 1)
    if len(plain) > most:
        raise DataError(f"{path} unpacks to more than {most:,} bytes.", "It is not the file it should be.")
    return plain
