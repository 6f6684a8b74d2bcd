"""Read CIFAR-10 and CIFAR-100 from their official archives, binary or python, or from the folders these unpack to."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from splitveil.core.errors import DataError
from splitveil.data.archive import Member, members
from splitveil.data.assembly import Part
from splitveil.data.pickles import read_pickle
from splitveil.data.source import Content

PIXELS = 3 * 32 * 32
MOST = 1 << 28  # bytes; the largest official file has 155 MB


def read_cifar10(path: Path) -> Content:
    """Records of one label byte and 3,072 picture bytes, in five training files and one test file."""
    training = [f"data_batch_{number}" for number in range(1, 6)]
    return _read(path, training, ["test_batch"], label_bytes=1, label_key="labels")


def read_cifar100(path: Path) -> Content:
    """Records of a coarse label, a fine label (the one used) and 3,072 picture bytes, in two files."""
    return _read(path, ["train"], ["test"], label_bytes=2, label_key="fine_labels")


def _read(path: Path, training: list[str], test: list[str], label_bytes: int, label_key: str) -> Content:
    found: dict[str, Part] = {}
    for member in members(path):
        name = member.path.name.removesuffix(".bin")
        if name not in (*training, *test):
            continue
        if member.size > MOST:
            raise DataError(f"{path / member.path} has {member.size:,} bytes.", "It is not the file it should be.")
        if member.path.suffix == ".bin":
            found[name] = _binary(member, path / member.path, label_bytes)
        elif not member.path.suffix:
            found[name] = _python(member, path / member.path, label_key)
    for name in (*training, *test):
        if name not in found:
            raise DataError(
                f"{path} has no {name}.bin and no {name}.", "Give the official binary or python archive, or its folder."
            )
    return Content({"train": _join(found, training), "test": _join(found, test)})


def _binary(member: Member, where: Path, label_bytes: int) -> Part:
    content = bytearray(member.read())
    record = label_bytes + PIXELS
    if not content or len(content) % record:
        raise DataError(
            f"{where} has {len(content):,} bytes, which is no multiple of {record:,}.", "Fetch or copy it again."
        )
    rows = np.frombuffer(content, np.uint8).reshape(-1, record)
    return rows[:, label_bytes:].reshape(-1, 3, 32, 32), rows[:, label_bytes - 1]


def _python(member: Member, where: Path, label_key: str) -> Part:
    batch = read_pickle(member.read(), where)
    images, labels = batch.get("data"), batch.get(label_key)
    if not isinstance(images, np.ndarray) or images.ndim != 2 or images.shape[1] != PIXELS:
        raise DataError(f"{where} has no pictures [N, {PIXELS}] under 'data'.", "Use the binary archive.")
    if not isinstance(labels, list) or not all(isinstance(label, int) and 0 <= label < 256 for label in labels):
        raise DataError(f"{where} has no list of labels under '{label_key}'.", "Use the binary archive.")
    return images.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)


def _join(found: dict[str, Part], names: list[str]) -> Part:
    return np.concatenate([found[name][0] for name in names]), np.concatenate([found[name][1] for name in names])
