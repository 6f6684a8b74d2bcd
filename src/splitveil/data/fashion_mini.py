"""The embedded data set: a class-balanced part of Fashion-MNIST (scripts/make_fashion_mini.py builds it).

One PNG of 120 x 100 pictures; rows 0-99 are training pictures (ten rows for each class), rows 100-119 test pictures
(two rows for each class). They are read so that the classes take turns: every prefix is class-balanced.
"""

from __future__ import annotations

import hashlib
import io
from importlib import resources
from pathlib import Path

import numpy as np
from PIL import Image

from splitveil.core.errors import DataError, UsageError
from splitveil.data.assembly import Part, assemble
from splitveil.data.augment import Augmentation
from splitveil.data.class_names import FASHION
from splitveil.data.dataset import Dataset
from splitveil.data.source import Progress, Receipt, Source

FILE = "fashion-mini.png"
SHA256 = "29ee0535cf4df7a1684117d9f6ec180d1c9ab26070e536ccc17b45627395f2bb"
SIDE, CLASSES, ROWS, COLUMNS, TRAIN_ROWS = 28, 10, 120, 100, 100


class FashionMini(Source):
    """`fashion-mini`: always there, nothing to fetch."""

    name = "fashion-mini"

    def open(self, root: Path) -> Dataset:
        """Read, verify and unfold the PNG (`root` is not needed)."""
        content = resources.files("splitveil.data").joinpath("embedded", FILE).read_bytes()
        if hashlib.sha256(content).hexdigest() != SHA256:
            raise DataError(
                f"The embedded file {FILE} is damaged: its sha256 is not {SHA256[:12]}...", "Reinstall splitveil."
            )
        mosaic = np.asarray(Image.open(io.BytesIO(content)))
        pictures = mosaic.reshape(ROWS, SIDE, COLUMNS, SIDE).swapaxes(1, 2)  # [120, 100, 28, 28]
        parts = {"train": _take_turns(pictures[:TRAIN_ROWS]), "test": _take_turns(pictures[TRAIN_ROWS:])}
        return assemble(
            self.name,
            parts,
            where=FILE,
            class_names=FASHION,
            augmentation=Augmentation(crop=2, flip=True),
            licence="MIT, Copyright (c) 2017 Zalando SE",
            source="Fashion-MNIST by Zalando Research, https://github.com/zalandoresearch/fashion-mnist",
        )

    def store(self, root: Path, origin: str | None, progress: Progress) -> Receipt:
        """There is nothing to fetch."""
        if origin is not None:
            raise UsageError(
                f"{self.name} comes with Splitveil, so nothing is taken from {origin}.",
                "Leave out --from; to use pictures of your own, give their path in place of the name.",
            )
        return Receipt(self.open(root), "embedded", "file sha256")


def _take_turns(rows: np.ndarray) -> Part:
    """Rows sorted by class [R, 100, 28, 28] -> pictures [N, 1, 28, 28] and labels 0, 1, ..., 9, 0, 1, ..."""
    by_class = rows.reshape(CLASSES, -1, SIDE, SIDE)
    images = by_class.swapaxes(0, 1).reshape(-1, 1, SIDE, SIDE)
    return images, np.arange(len(images)) % CLASSES


FASHION_MINI = FashionMini()
