"""Which pictures the attacker trains on and which are under attack (SPEC 8.1, DESIGN 5)."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

from splitveil import data as data_family
from splitveil.core.errors import InputError, UnknownNameError, nearest
from splitveil.data.augment import Augmentation
from splitveil.data.dataset import DataParts, Dataset, ImageSet
from splitveil.data.protocol import split

log = logging.getLogger("splitveil.audit")

Mode = Literal["training_time", "inference_time"]


@dataclass(frozen=True)
class AuditData:
    """All that an audit needs to know about pictures. `train` (who was trained on) serves membership inference only.

    `attributes` are further labels of the auxiliary and of the test pictures by name, such as who is on a picture or
    whether they wear glasses: ``{"glasses": (of_aux, of_test)}``, int64 from 0. The attacker tries to read them.

    For a model that Splitveil did not train: ``AuditData(aux=ImageSet(...), test=ImageSet(...))``.
    """

    aux: ImageSet
    test: ImageSet
    train: ImageSet | None = None
    class_names: tuple[str, ...] = ()
    protocol: str = "disjoint"
    name: str = "unnamed"
    augmentation: Augmentation | None = None
    shared_labels: bool = True  # the auxiliary pictures are labelled with the same classes as the test pictures
    attributes: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, values in self.attributes.items():
            for part, own in zip((self.aux, self.test), values, strict=True):
                if own.dtype != torch.int64 or own.shape != part.labels.shape or (len(own) and int(own.min()) < 0):
                    raise InputError(
                        f"The attribute '{name}' needs an int64 value from 0 for each of the {len(part)} pictures."
                    )

    @classmethod
    def of(cls, data: AuditData | DataParts | Dataset | str | PathLike[str], seed: int = 0) -> AuditData:
        """From the parts of a run, or from a whole data set (or its name or path), which `seed` splits.

        Of a whole data set nobody says which pictures the model was trained on: membership is not asked.
        """
        if isinstance(data, AuditData):
            return data
        if isinstance(data, str | PathLike):
            data = data_family.create(data if isinstance(data, str) else Path(data))
        if isinstance(data, Dataset):
            return replace(cls.of(split(data, "disjoint", seed)), train=None)
        if not isinstance(data, DataParts):
            raise InputError(
                f"An audit needs the name or path of a data set, sv.data.load(...), sv.data.create(...) or "
                f"AuditData(aux=..., test=...), not a {type(data).__name__}."
            )
        return cls(
            aux=data.aux if data.protocol == "published" else without_twins(data.aux, data.test),
            test=data.test,
            train=data.train,
            class_names=data.info.class_names,
            protocol=data.protocol,
            name=data.info.name,
            augmentation=data.info.augmentation,
            shared_labels=len(data.aux_index) > 0,
        )

    def to(self, device: str | torch.device) -> AuditData:
        train = None if self.train is None else self.train.to(device)
        aux = train if train is not None and self.aux is self.train else self.aux.to(device)
        attributes = {name: (own.to(device), of_test.to(device)) for name, (own, of_test) in self.attributes.items()}
        return replace(self, aux=aux, test=self.test.to(device), train=train, attributes=attributes)

    def class_name(self, label: int) -> str:
        return self.class_names[label] if label < len(self.class_names) else str(label)

    def checksum(self) -> str:
        """Identifies the attacker's pictures and those under attack, and what else is known of them."""
        digest = hashlib.sha256((self.aux.digest() + self.test.digest()).encode())
        for name, values in sorted(self.attributes.items()):
            digest.update(name.encode())
            for one in values:
                digest.update(one.cpu().numpy().astype("<i8").data)
        return digest.hexdigest()[:10]


@dataclass(frozen=True)
class Subjects:
    """Who attacks with what: the attacker's pictures, the pictures under attack, and their places in the test part."""

    auxiliary: ImageSet
    targets: ImageSet
    index: Tensor  # [N] on the CPU
    own_index: Tensor | None = None  # where the attacker's pictures are test pictures: their places [M], on the CPU
    shared_labels: bool = True  # both are labelled with the model's classes


def choose(data: AuditData, mode: Mode, num_images: int | None) -> Subjects:
    """SPEC 8.1: training_time attacks the test part with the auxiliary part; inference_time attacks the last tenth of
    the test part with its first nine tenths, and uses no other picture.

    The pictures under attack are ordered class by class in turn, so that the first k are balanced and the same in
    every audit of the data.
    """
    if mode not in get_args(Mode):
        raise UnknownNameError(f"There is no mode called '{mode}'.", nearest(mode, get_args(Mode)))
    if num_images is not None and (not isinstance(num_images, int) or num_images < 1):
        raise InputError(f"An audit cannot attack {num_images} pictures.", "Ask for one or more.")
    if data.aux.images.shape[1:] != data.test.images.shape[1:]:
        raise InputError(
            f"The auxiliary pictures are {list(data.aux.images.shape[1:])}, the test pictures "
            f"{list(data.test.images.shape[1:])}.",
            "Bring them to one size and number of channels.",
        )
    if mode == "training_time":
        auxiliary, places, own = data.aux, torch.arange(len(data.test)), None
    else:
        border = len(data.test) * 9 // 10
        own = torch.arange(border)
        auxiliary, places = data.test.subset(own), torch.arange(border, len(data.test))
    if len(places) == 0:
        raise InputError("There is no test picture to attack.", "Give the audit a test part.")
    if len(auxiliary) < 2:
        raise InputError(f"The attacker has {len(auxiliary)} pictures of its own.", "Give it at least two.")
    labels = data.test.labels.cpu()[places]
    if int(labels.min()) < 0:
        raise InputError(f"A test picture has the label {int(labels.min())}.", "Number the classes from 0.")
    index = places[in_turn(labels)][:num_images]
    targets = data.test.subset(index)
    if data.protocol != "published":
        refuse_overlap(auxiliary, targets)
    return Subjects(auxiliary, targets, index, own, shared_labels=data.shared_labels or own is not None)


def in_turn(labels: Tensor) -> Tensor:
    """Order [N] that takes the first picture of every class, then the second of every class, and so on.

    >>> in_turn(torch.tensor([1, 1, 0, 0, 0])).tolist()
    [2, 0, 3, 1, 4]
    """
    by_class = labels.argsort(stable=True)
    counts = torch.bincount(labels)
    start = counts.cumsum(0) - counts
    turn = torch.empty_like(labels)
    turn[by_class] = torch.arange(len(labels)) - start[labels[by_class]]
    return (turn * len(counts) + labels).argsort(stable=True)


def refuse_overlap(auxiliary: ImageSet, targets: ImageSet) -> None:
    """An attacker that owns the very pictures under attack proves nothing."""
    known = set(auxiliary.fingerprints())
    shared = sum(value in known for value in targets.fingerprints())
    if shared:
        raise InputError(
            f"{shared} of the {len(targets)} pictures under attack are among the attacker's own.",
            "Remove them from the auxiliary part, or allow it: data.protocol = 'published' in a recipe, "
            "AuditData(protocol='published') in Python.",
        )


def without_twins(auxiliary: ImageSet, test: ImageSet) -> ImageSet:
    """Leave out the few pictures that a data set holds twice, once on either side; many would be a mistake of parts.

    Some public data sets have such twins. Where they are more than one in a hundred, nothing is left out, and the
    overlap is refused like any other.
    """
    known = set(test.fingerprints())
    alone = [place for place, value in enumerate(auxiliary.fingerprints()) if value not in known]
    twins = len(auxiliary) - len(alone)
    if twins == 0 or twins * 100 > len(auxiliary):
        return auxiliary
    log.warning("%d of the attacker's %d pictures are test pictures too and are left out.", twins, len(auxiliary))
    return auxiliary.subset(torch.tensor(alone))
