"""Read our `.npz` layout: train_x, train_y, test_x, test_y, and optionally aux_x, aux_y, class_names, augmentation.

Pictures are uint8 [N, h, w] or [N, h, w, ch], labels integers [N] that count from 0, `class_names` text [C],
`augmentation` the three numbers crop (pixels), flip (0 or 1), rotate (degrees). Nothing is unpickled.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from splitveil.core.errors import DataError, InputError
from splitveil.data.assembly import assemble
from splitveil.data.augment import Augmentation
from splitveil.data.dataset import Dataset
from splitveil.data.source import Content

LAYOUT = "Expected train_x, train_y, test_x, test_y (uint8 pictures [N, h, w] or [N, h, w, ch], integer labels)."


def open_npz(path: Path) -> Dataset:
    """A data set straight from a file."""
    arrays = _arrays(path)
    content = _content(arrays, path)
    return assemble(
        path.stem,
        content.parts,
        where=str(path),
        class_names=content.class_names,
        augmentation=_augmentation(arrays, path),
    )


def read_npz(path: Path) -> Content:
    """The parts of a registered data set, for its source to check and to store."""
    return _content(_arrays(path), path)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path} is not an .npz file, or is truncated.", LAYOUT)
    try:
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, MemoryError) as error:
        raise DataError(f"{path} cannot be read: {error}.", LAYOUT) from None


def _content(arrays: dict[str, np.ndarray], path: Path) -> Content:
    parts = {}
    for part in ("train", "test", "aux"):
        keys = (f"{part}_x", f"{part}_y")
        if part == "aux" and not any(key in arrays for key in keys):
            continue
        missing = [key for key in keys if key not in arrays]
        if missing:
            raise DataError(f"{path} has no {missing[0]}.", LAYOUT)
        parts[part] = (_channels_first(arrays[keys[0]]), arrays[keys[1]])
    names = arrays.get("class_names")
    if names is None:
        return Content(parts)
    if names.dtype.kind != "U" or names.ndim != 1:
        raise DataError(f"The class_names in {path} are {names.dtype} {list(names.shape)}.", "Expected text [C].")
    return Content(parts, tuple(names.tolist()))


def _channels_first(images: np.ndarray) -> np.ndarray:
    """[N, h, w] or [N, h, w, ch] -> [N, ch, h, w]; other shapes pass, for `assemble` to refuse."""
    if images.ndim == 3:
        return images[:, None]
    return np.moveaxis(images, -1, 1) if images.ndim == 4 else images


def _augmentation(arrays: dict[str, np.ndarray], path: Path) -> Augmentation | None:
    values = arrays.get("augmentation")
    if values is None:
        return None
    try:
        crop, flip, rotate = values.tolist()
        return Augmentation(crop=int(crop), flip=bool(flip), rotate=float(rotate))
    except (TypeError, ValueError, InputError) as error:
        raise DataError(f"The augmentation in {path} is wrong: {error}.", "Expected [crop, flip, rotate].") from None
