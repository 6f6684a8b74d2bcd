"""Read Fashion-MNIST: four idx files, packed with gzip or plain, in one folder or archive."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from splitveil.core.errors import DataError
from splitveil.data.archive import gunzip, members
from splitveil.data.source import Content

UNSIGNED_BYTE = 8
MOST = 1 << 28  # bytes; the largest official file unpacks to 47 MB


def read_fashion_mnist(path: Path) -> Content:
    """The training and the test part from the four files below `path`."""
    names = [f"{part}-{kind}" for part in ("train", "t10k") for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")]
    found: dict[str, np.ndarray] = {}
    for member in members(path):
        plain = member.path.name.removesuffix(".gz")
        if plain in names:
            where = path / member.path
            content = member.read()
            if member.path.suffix == ".gz":
                content = gunzip(content, where, MOST)
            found[plain] = read_idx(content, where)
    for name in names:
        if name not in found:
            raise DataError(f"{path} has no {name}.gz.", "Give the folder that holds the four published files.")
    return Content(
        {
            "train": (found[names[0]][:, None], found[names[1]]),
            "test": (found[names[2]][:, None], found[names[3]]),
        }
    )


def read_idx(content: bytes, where: Path) -> np.ndarray:
    """An array from the idx format: two zero bytes, the type, the number of axes, their lengths, the values."""
    if len(content) < 4 or content[:3] != bytes((0, 0, UNSIGNED_BYTE)) or len(content) < 4 + 4 * content[3]:
        raise DataError(f"{where} is not an idx file of bytes.", "Give the files as they were published.")
    axes = content[3]
    shape = tuple(int(length) for length in np.frombuffer(content, ">u4", axes, 4))
    start = 4 + 4 * axes
    if len(content) - start != math.prod(shape):
        raise DataError(
            f"{where} is truncated: it declares {math.prod(shape):,} values and holds {len(content) - start:,}.",
            "Fetch or copy it again.",
        )
    return np.frombuffer(bytearray(content), np.uint8, offset=start).reshape(shape)
