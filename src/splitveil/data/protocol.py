"""Split the training pictures between defender and attacker (DESIGN 5), fixed by the seed.

The pictures are ordered by class and shuffled within each class; going down that list, every block of 20 gives 14 to
the defender's training, 1 to its validation and 5 to the attacker. Each part therefore has its share of all pictures
and of every class to within one picture.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import torch
from torch import Tensor

from splitveil.core.errors import ConfigError, DataError
from splitveil.core.seeding import generator
from splitveil.data.dataset import DataParts, Dataset

BLOCK = 20
VALIDATION = (9,)  # 5 %
LEAST = VALIDATION[0] + 1  # fewer training pictures leave none for validation
AUXILIARY = (3, 7, 11, 15, 19)  # 25 %; no two held-out places touch, so a class of two keeps a training picture


def split(
    dataset: Dataset, protocol: Literal["disjoint", "published"], seed: int, limit: int | None = None
) -> DataParts:
    """The four parts of a run.

    `disjoint`: defender training 70 %, validation 5 %, attacker 25 %. Where the data set brings its own auxiliary part,
    the attacker has that one and the defender 95 % and 5 %.
    `published`: defender and attacker both have all training pictures; validation is a fixed 5 % that also lies inside
    the training part, so it says nothing about generalisation.
    `limit` first reduces the training pictures to so many, in class proportion.
    """
    labels = dataset.train.labels
    order = _class_order(labels, seed)
    if limit is not None and limit < len(order):
        order = order[_spread(len(order), limit)]
    place = torch.arange(len(order)) % BLOCK
    validation = _places(place, VALIDATION)
    auxiliary = torch.zeros_like(validation)
    if protocol == "disjoint" and dataset.aux is None:
        auxiliary = _places(place, AUXILIARY)
    kept = torch.ones_like(validation) if protocol == "published" else ~(validation | auxiliary)
    train_index = order[kept].sort().values
    val_index = order[validation].sort().values
    train = dataset.train.subset(train_index)
    if protocol == "published":
        aux, aux_index = train, train_index
    elif dataset.aux is not None:
        aux, aux_index = dataset.aux, train_index[:0]
    else:
        aux_index = order[auxiliary].sort().values
        aux = dataset.train.subset(aux_index)
    _check_classes(train.labels, dataset, limit)
    return DataParts(
        info=dataset.info,
        protocol=protocol,
        train=train,
        val=dataset.train.subset(val_index),
        aux=aux,
        test=dataset.test,
        train_index=train_index,
        val_index=val_index,
        aux_index=aux_index,
        checksum=_checksum(dataset, protocol, (train_index, val_index, aux_index)),
    )


def _class_order(labels: Tensor, seed: int) -> Tensor:
    """Indices [N] sorted by class, shuffled within each class."""
    shuffled = torch.randperm(len(labels), generator=generator(seed, "data", "parts"))
    return shuffled[labels[shuffled].sort(stable=True).indices]


def _spread(count: int, wanted: int) -> Tensor:
    """`wanted` places evenly spread over `count`."""
    return (torch.arange(wanted) * count + count // 2) // wanted


def _places(place: Tensor, wanted: tuple[int, ...]) -> Tensor:
    return torch.isin(place, torch.tensor(wanted))


def _check_classes(labels: Tensor, dataset: Dataset, limit: int | None) -> None:
    """Every class needs a picture to train on; say which one has none, and why."""
    info = dataset.info
    counts = torch.bincount(labels, minlength=info.num_classes)
    if int(counts.min()) > 0:
        return
    name = info.class_names[int(counts.argmin())]
    if limit is not None:
        raise ConfigError(
            f"data.limit = {limit} leaves no training picture of class '{name}' of {info.name}.",
            f"Raise it well above {2 * info.num_classes} (two pictures for each class).",
        )
    raise DataError(
        f"Class '{name}' of {info.name} has so few pictures that the defender gets none to train on.",
        "Give every class at least two training pictures.",
    )


def _checksum(dataset: Dataset, protocol: str, indices: tuple[Tensor, ...]) -> str:
    digest = hashlib.sha256(protocol.encode())
    for pictures in (dataset.train, dataset.test, dataset.aux):
        digest.update(b"none" if pictures is None else pictures.digest().encode())
    for index in indices:
        digest.update(f"/{len(index)}/".encode())
        digest.update(index.numpy().astype("<i8").data)
    return digest.hexdigest()
