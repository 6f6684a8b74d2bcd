"""What an export must know of a model that Splitveil did not train, and refuses in one sentence before any work."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from splitveil import __version__
from splitveil import data as data_family
from splitveil.core.errors import InputError, reason
from splitveil.core.manifest import torch_version
from splitveil.core.options import Options
from splitveil.data.augment import to_float
from splitveil.data.dataset import DataParts, Dataset, ImageSet
from splitveil.models.digest import weights_digest
from splitveil.models.split import SplitModel, other_format
from splitveil.serving.manifest import Defence

FORMS = "a data set or its name, its parts, AuditData, an ImageSet, or (images, labels)"


@dataclass(frozen=True)
class TestPictures:
    """Pictures that the model was not trained on, and what their source says of the classes."""

    __test__ = False  # the name is no test's

    test: ImageSet
    class_names: tuple[str, ...] = ()
    num_classes: int | None = None  # None: only the labels tell


def pictures_of(data: Any) -> TestPictures:
    """The test pictures of a data set (or its name, or its parts), of AuditData, or those that are given themselves."""
    if isinstance(data, str | PathLike):
        data = data_family.create(data if isinstance(data, str) else Path(data))
    if isinstance(data, ImageSet):
        return TestPictures(data)
    if isinstance(data, Dataset | DataParts):
        return TestPictures(data.test, data.info.class_names, data.info.num_classes)
    if isinstance(data, tuple | list) and len(data) == 2 and all(isinstance(one, Tensor | np.ndarray) for one in data):
        images, labels = (torch.as_tensor(one) for one in data)
        whole = not labels.is_floating_point() and labels.dtype != torch.bool
        return TestPictures(ImageSet(images, labels.long() if whole else labels))
    test = getattr(data, "test", None)  # AuditData, which this layer does not know
    if isinstance(test, ImageSet):
        return TestPictures(test, tuple(getattr(data, "class_names", ())))
    raise InputError(f"An export needs pictures with their labels, not a {type(data).__name__}.", f"Give it {FORMS}.")


@torch.no_grad()
def check_own(model: SplitModel, pictures: TestPictures) -> int:
    """How many classes the model names; InputError where model and pictures do not fit. Both are on the CPU."""
    test = pictures.test
    if len(test) < 2:
        raise InputError("An export needs pictures to check itself on.", "Give it some that the model can classify.")
    other = other_format(model)
    if other is not None:
        raise InputError(f"The weights of the model are {other}, but an artefact has float32.", "Use model.float().")
    x = to_float(test.images[:2])
    model.check_shape(x)
    z = _run("edge half", "pictures", model.edge, x)
    logits = _run("cloud half", "features", model.cloud, _run("transmission", "features", model.transmit, z))
    if logits.ndim != 2:
        raise InputError(
            f"The cloud half gives {list(logits.shape[1:])} values for a picture.", "It should give one logit a class."
        )
    classes = int(logits.shape[1])
    if pictures.num_classes not in (None, classes):
        raise InputError(
            f"The model names {classes} classes, but the data has {pictures.num_classes}.",
            "Give pictures of the model's own classes; where they show only some of them, give (images, labels).",
        )
    lowest, highest = int(test.labels.min()), int(test.labels.max())
    if lowest < 0 or highest >= classes:
        raise InputError(
            f"The pictures have labels from {lowest} to {highest}, but the model names {classes} classes.",
            "Number the classes from 0, as the model does.",
        )
    return classes


def checked_names(names: Any, num_classes: int) -> tuple[str, ...]:
    """Names of the classes: one for each, or none."""
    listed = () if isinstance(names, str) else tuple(names)
    if (isinstance(names, str) or listed) and (
        len(listed) != num_classes or not all(isinstance(name, str) for name in listed)
    ):
        raise InputError(
            f"A model of {num_classes} classes needs {num_classes} class names, not {names!r}.",
            "Give a tuple with one text for each class, in their order, or leave them out.",
        )
    return listed


def stated_defences(model: SplitModel) -> tuple[Defence, ...]:
    """The defences in the order in which they act, with their options where they say them."""
    found = []
    for name, defence in model.defences.items():
        options = getattr(defence, "options", None)
        found.append(
            Defence(name=name, options=options.model_dump(mode="json") if isinstance(options, Options) else {})
        )
    return tuple(found)


def own_signature(name: str, model: SplitModel) -> str:
    """One line that pins the weights and what is known of the defences: a noise has no weights."""
    said = [one.model_dump(mode="json") for one in stated_defences(model)]
    pin = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:10] if said else "none"
    weights = weights_digest(model)[:10]
    return f"splitveil:{__version__}|own:{name}|weights:{weights}|defences:{pin}|torch:{torch_version()}"


def _run(part: str, what: str, call: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    try:
        y = call(x)
    except InputError:
        raise
    except Exception as error:  # a module of the user's own raises what it likes
        said = f"{type(error).__name__}: {reason(error).rstrip('.')}"
        raise InputError(
            f"The {part} cannot take {what} {list(x.shape[1:])} ({said}).",
            "Pictures must have the channels and the size that the model was trained with, and the parts must fit.",
        ) from error
    if not isinstance(y, Tensor) or y.ndim < 2 or len(y) != len(x):
        found = list(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise InputError(f"The {part} gives {found} for {len(x)} pictures.", "It should give a tensor, a row for each.")
    return y
