"""What a data set is: pictures as uint8 tensors, what is known about them, and the parts a run works with."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
from torch import Tensor

from splitveil.core.errors import InputError
from splitveil.data.augment import Augmentation


@dataclass(frozen=True)
class DatasetInfo:
    """What models, training and reports need to know about a data set.

    `mean` and `std` are per channel, of the training pictures in [0, 1]; models normalise with them inside the edge
    half, so that a picture enters a split model as plain values in [0, 1].
    """

    name: str
    num_classes: int
    image_shape: tuple[int, int, int]  # (ch, h, w)
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augmentation: Augmentation
    licence: str
    source: str


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Pictures and their labels, side by side on one device.

    Shapes: images [N, ch, h, w] uint8; labels [N] int64. N may be 0.

    >>> pictures = ImageSet(torch.zeros(3, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 1]))
    >>> len(pictures), len(pictures.subset(torch.tensor([2])))
    (3, 1)
    """

    images: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4:
            scaled = "Floats in [0, 1] become such pictures with (images * 255).round().to(torch.uint8)."
            raise InputError(
                f"Pictures must be uint8 [N, ch, h, w], not {self.images.dtype} {list(self.images.shape)}.",
                scaled if self.images.is_floating_point() else "",
            )
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            raise InputError(f"{len(self.images)} pictures need as many int64 labels, not {list(self.labels.shape)}.")

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        """A notebook shows this: how many, how large and where, not the pictures."""
        return f"ImageSet({len(self)} pictures {list(self.images.shape[1:])} on {self.images.device})"

    def to(self, device: str | torch.device) -> Self:
        """The same pictures on another device; a checksum that is known already goes along."""
        moved = replace(self, images=self.images.to(device), labels=self.labels.to(device))
        if "_digest" in self.__dict__:  # 180 MB for CIFAR-10, which every audit of a sweep would hash again
            moved.__dict__["_digest"] = self._digest
        return moved

    def subset(self, index: Tensor) -> Self:
        """The pictures at `index` [M], in that order: a copy, or the set itself where that is all of it."""
        index = index.to(self.images.device)
        if torch.equal(index, torch.arange(len(self), device=index.device)):
            return self
        return replace(self, images=self.images[index], labels=self.labels[index])

    def digest(self) -> str:
        """SHA-256 over shape, pictures and labels: equal on every machine and device for equal content."""
        return self._digest

    def fingerprints(self) -> list[bytes]:
        """A checksum of each picture, without its label: equal pictures have equal ones."""
        rows = self.images.cpu().contiguous().numpy()
        return [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in rows]

    @cached_property
    def _digest(self) -> str:
        digest = hashlib.sha256(repr(tuple(self.images.shape)).encode())
        digest.update(np.ascontiguousarray(self.images.cpu().numpy()).data)
        digest.update(self.labels.cpu().numpy().astype("<i8").data)
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Dataset:
    """A complete data set. `aux`, where it exists, holds pictures of other subjects for an attacker to train on.

    Labels of `aux` name the attacker's own classes; they need not lie below `info.num_classes`.
    """

    info: DatasetInfo
    train: ImageSet
    test: ImageSet
    aux: ImageSet | None = None

    def twins(self) -> int:
        """How many test pictures are among the training pictures, or the auxiliary ones, too."""
        known = {*self.train.fingerprints(), *([] if self.aux is None else self.aux.fingerprints())}
        return sum(one in known for one in self.test.fingerprints())


@dataclass(frozen=True, eq=False)
class DataParts:
    """Who may see what (DESIGN 5): the defender `train` and `val`, the attacker `aux`, the audit `test`.

    The indices point into the training pictures of the data set (on the CPU); `aux_index` is empty when the data set
    brings an auxiliary part of its own. `checksum` identifies the content and the parts.
    """

    info: DatasetInfo
    protocol: str
    train: ImageSet
    val: ImageSet
    aux: ImageSet
    test: ImageSet
    train_index: Tensor = field(repr=False)
    val_index: Tensor = field(repr=False)
    aux_index: Tensor = field(repr=False)
    checksum: str

    def to(self, device: str | torch.device) -> Self:
        """The same parts on another device; what two parts share stays shared."""
        train = self.train.to(device)
        aux = train if self.aux is self.train else self.aux.to(device)
        return replace(self, train=train, val=self.val.to(device), aux=aux, test=self.test.to(device))
