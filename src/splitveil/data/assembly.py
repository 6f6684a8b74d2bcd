"""From plain arrays to a `Dataset`, or one sentence that says what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from splitveil.core.errors import DataError
from splitveil.data.augment import Augmentation
from splitveil.data.dataset import Dataset, DatasetInfo, ImageSet

Part = tuple[np.ndarray, np.ndarray]  # pictures [N, ch, h, w] and labels [N]


def assemble(
    name: str,
    parts: Mapping[str, Part],
    *,
    where: str,
    class_names: Sequence[str] | None = None,
    augmentation: Augmentation | None = None,
    licence: str = "unknown",
    source: str = "",
) -> Dataset:
    """Check the parts `train`, `test` and, optionally, `aux`, and put them together.

    `where` is the file or folder that an error names. Without `class_names` the classes are 0 ... max(label); without
    `augmentation` pictures are shifted by an eighth of their side and mirrored.
    """
    for part in ("train", "test"):
        if part not in parts:
            raise DataError(f"{where} has no {part} part.", "Every data set needs the parts train and test.")
    sets = {part: _image_set(f"{part} part of {where}", *map(np.asarray, both)) for part, both in parts.items()}
    train, test = sets["train"], sets["test"]
    for part, pictures in sets.items():
        if pictures.images.shape[1:] != train.images.shape[1:]:
            raise DataError(
                f"The {part} pictures of {where} are {_size(pictures)}, the train pictures {_size(train)}.",
                "All pictures need one size and one number of channels.",
            )
    if class_names is None:
        class_names = [str(label) for label in range(int(train.labels.max()) + 1)]
    _check_labels(train, test, class_names, where)
    channels, height, width = train.images.shape[1:]
    mean, std = channel_statistics(train.images)
    info = DatasetInfo(
        name=name,
        num_classes=len(class_names),
        image_shape=(channels, height, width),
        class_names=tuple(class_names),
        mean=mean,
        std=std,
        augmentation=augmentation or Augmentation(crop=min(height, width) // 8, flip=True),
        licence=licence,
        source=source or where,
    )
    return Dataset(info, train, test, sets.get("aux"))


def channel_statistics(images: torch.Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of uint8 pictures [N, ch, h, w], on the scale [0, 1].

    Exact: from the histogram. A constant channel gets one grey level as its deviation, because models divide by it.
    """
    values = torch.arange(256, dtype=torch.float64) / 255
    means, stds = [], []
    for channel in range(images.shape[1]):
        counts = torch.zeros(256, dtype=torch.float64)
        for block in images[:, channel].split(4096):  # bincount widens to int64: eight times the memory
            counts += torch.bincount(block.reshape(-1), minlength=256)
        share = counts / counts.sum()
        mean = float(share @ values)
        means.append(round(mean, 6))
        stds.append(round(max(float(share @ (values - mean) ** 2) ** 0.5, 1 / 255), 6))
    return tuple(means), tuple(stds)


def _image_set(what: str, images: Any, labels: Any) -> ImageSet:
    if images.dtype != np.uint8:
        raise DataError(f"The pictures in the {what} are {images.dtype}, not uint8.", "Scale them to 0 ... 255.")
    if images.ndim != 4 or 0 in images.shape[1:]:
        raise DataError(
            f"The pictures in the {what} have the shape {list(images.shape)}.", "Expected [N, h, w] or [N, h, w, ch]."
        )
    if images.shape[1] not in (1, 3):
        raise DataError(
            f"The pictures in the {what} have {images.shape[1]} channels.",
            "Splitveil reads grey pictures (1) and colour pictures (3), with the channels last in a file.",
        )
    if not np.issubdtype(labels.dtype, np.integer) or labels.ndim != 1:
        raise DataError(
            f"The labels in the {what} are {labels.dtype} {list(labels.shape)}.", "Expected integers of shape [N]."
        )
    if len(images) != len(labels):
        raise DataError(f"The {what} has {len(images)} pictures but {len(labels)} labels.", "Give one label to each.")
    if len(images) == 0:
        raise DataError(f"The {what} has no pictures.", "Every part needs at least one.")
    if int(labels.min()) < 0:
        raise DataError(f"The {what} has the label {int(labels.min())}.", "Labels count from 0.")
    return ImageSet(torch.from_numpy(np.ascontiguousarray(images)), torch.from_numpy(labels.astype(np.int64)))


def _check_labels(train: ImageSet, test: ImageSet, class_names: Sequence[str], where: str) -> None:
    count = len(class_names)
    if count < 2:
        raise DataError(f"{where} has only one class.", "A classifier needs at least two.")
    for part, pictures in (("train", train), ("test", test)):
        highest = int(pictures.labels.max())
        if highest >= count:
            raise DataError(
                f"The {part} part of {where} has the label {highest}, but there are {count} classes.",
                f"Labels run from 0 to {count - 1}.",
            )
    counts = torch.bincount(train.labels, minlength=count)
    if int(counts.min()) == 0:
        label = int(counts.argmin())
        raise DataError(
            f"Class {label} ('{class_names[label]}') of {where} has no training picture.",
            "Remove the class and number the others without a gap, or add pictures of it.",
        )


def _size(pictures: ImageSet) -> str:
    channels, height, width = pictures.images.shape[1:]
    return f"{height} x {width} x {channels}"
