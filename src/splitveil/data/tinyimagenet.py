"""Read Tiny ImageNet from its official zip: 200 classes, 500 training pictures each, 50 for validation, our test part.

Classes are numbered in the sorted order of their WordNet ids; the unlabelled official test pictures are left out.
"""

from __future__ import annotations

import io
import re
from pathlib import Path, PurePosixPath

import numpy as np

from splitveil.core.errors import DataError
from splitveil.core.pictures import decode
from splitveil.data.archive import Member, members
from splitveil.data.source import Content

SIDE = 64


def read_tinyimagenet(path: Path) -> Content:
    """The training part and, as the test part, the labelled validation pictures."""
    texts: dict[str, str] = {}
    pictures: list[PurePosixPath] = []
    for member in members(path):
        if member.path.name in ("wnids.txt", "words.txt", "val_annotations.txt"):
            texts[member.path.name] = member.read().decode("utf-8", "replace")
        elif member.path.suffix == ".JPEG":
            pictures.append(member.path)
    for name in ("wnids.txt", "words.txt", "val_annotations.txt"):
        if name not in texts:
            raise DataError(f"{path} has no {name}.", "Give the official file tiny-imagenet-200.zip.")
    classes = sorted(texts["wnids.txt"].split())
    validation = dict(line.split("\t")[:2] for line in texts["val_annotations.txt"].splitlines() if "\t" in line)
    labels = _labels(pictures, classes, validation)
    parts = {}
    for part, folder in (("train", "train"), ("test", "val")):
        chosen = sorted((file for file in labels if folder in file.parts), key=_natural)
        images = np.zeros((len(chosen), 3, SIDE, SIDE), np.uint8)
        parts[part] = (images, np.array([labels[file] for file in chosen], np.int64))
        place = {file: number for number, file in enumerate(chosen)}
        for member in members(path):
            if member.path in place:
                images[place[member.path]] = _picture(member, path)
    words = dict(line.split("\t", 1) for line in texts["words.txt"].splitlines() if "\t" in line)
    return Content(parts, tuple(words.get(wnid, wnid).split(",")[0] for wnid in classes))


def _labels(pictures: list[PurePosixPath], classes: list[str], validation: dict[str, str]) -> dict[PurePosixPath, int]:
    """train/WNID/images/FILE is named after its class; val/images/FILE is listed in val_annotations.txt."""
    number = {wnid: label for label, wnid in enumerate(classes)}
    labels = {}
    for file in pictures:
        wnid = validation.get(file.name) if "val" in file.parts else file.name.split("_")[0]
        if wnid in number:
            labels[file] = number[wnid]
    return labels


def _natural(file: PurePosixPath) -> tuple[object, ...]:
    """n01443537_9.JPEG before n01443537_10.JPEG."""
    return tuple(int(piece) if piece.isdigit() else piece for piece in re.split(r"(\d+)", file.name))


def _picture(member: Member, path: Path) -> np.ndarray:
    values = decode(io.BytesIO(member.read()), str(path / member.path), grey=False)
    if values.shape != (3, SIDE, SIDE):
        raise DataError(
            f"{path / member.path} is not {SIDE} x {SIDE}.", "Give the official file tiny-imagenet-200.zip."
        )
    return values
