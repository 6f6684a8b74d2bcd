"""Refuse models and pictures that do not fit together, before anything is trained."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from splitveil.attacks.queries import CHUNK
from splitveil.audit.subjects import AuditData, Subjects
from splitveil.core.errors import InputError, reason
from splitveil.data.augment import to_float
from splitveil.models.layers import Normalise
from splitveil.models.split import DIVERGED, SplitModel, other_format, transmitted


@torch.no_grad()
def check_model(model: SplitModel, pictures: Tensor) -> None:
    """Run pictures through edge, transmission and cloud; say in one sentence which part does not fit."""
    x = to_float(pictures[:2])
    if len(x) == 1:
        x = x.repeat(2, 1, 1, 1)
    model.check_shape(x)
    before = x.clone()
    z = _run("edge half", model.edge, x)
    if not torch.equal(x, before):
        raise InputError(
            "The edge half changes the pictures it is given (an operation in place).",
            "Let it begin with a copy: x = x.clone().",
        )
    if z.dtype != torch.float32:
        raise InputError(f"The edge half gives {z.dtype}, and attacks take float32.", "Let it end with z.float().")
    more = _run("edge half", model.edge, to_float(pictures[:CHUNK]))
    if more.shape[1:] != z.shape[1:]:
        raise InputError(
            f"The edge half gives features {list(z.shape[1:])} for {len(z)} pictures and {list(more.shape[1:])} for "
            f"{len(more)}.",
            "The shape of a feature must not depend on how many pictures are sent.",
        )
    sent = _transmit(model, z)
    if sent.shape != z.shape:
        raise InputError(f"The transmission turns features {list(z.shape[1:])} into {list(sent.shape[1:])}.")
    logits = _run("cloud half", model.cloud, sent)
    if logits.ndim != 2:
        raise InputError(
            f"The cloud half gives {list(logits.shape[1:])} values for a picture.",
            "It should give one logit per class.",
        )
    if model.num_classes is not None and logits.shape[1] != model.num_classes:
        raise InputError(
            f"The cloud half gives {logits.shape[1]} logits, but there are {model.num_classes} classes.",
            "Are these the pictures and classes that the model was trained for?",
        )


@torch.no_grad()
def check_sent(model: SplitModel, subjects: Subjects) -> None:
    """Send every picture once: a value that is not finite spoils attacks, which would then look harmless.

    Not where it would cost queries: features of a model that is hidden are looked at when they arrive.
    """
    if model.hidden:
        return
    for part in (subjects.targets, subjects.auxiliary):
        for piece in part.images.split(CHUNK):
            _transmit(model, _run("edge half", model.edge, to_float(piece)))


def _transmit(model: SplitModel, z: Tensor) -> Tensor:
    """What is sent in place of z; the defence that makes it not finite is named."""
    if not model.defences:
        return _run("transmission", model.transmit, z)
    random = torch.Generator(z.device).manual_seed(0)
    for name, defence in model.defences.items():
        send = partial(transmitted, defences=[defence], generator=random)
        z = _run(f"defence '{name}'", send, z, "Check its options and its transmit; what it learned may have diverged.")
    return z


def check_labels(model: SplitModel, data: AuditData, subjects: Subjects) -> None:
    """Refuse labels that name no class of the model, where the audit would use them as such."""
    classes = count_classes(model, subjects.targets.images)
    parts = {"test": data.test, "auxiliary": data.aux if data.shared_labels else None, "training": data.train}
    for name, part in parts.items():
        if part is None or len(part) == 0:
            continue
        lowest, highest = int(part.labels.min()), int(part.labels.max())
        if lowest < 0 or highest >= classes:
            raise InputError(
                f"The {name} pictures have labels from {lowest} to {highest}, but the model has {classes} classes.",
                "Number the classes from 0. If auxiliary labels mean something else, pass shared_labels=False.",
            )


@torch.no_grad()
def count_classes(model: SplitModel, pictures: Tensor) -> int:
    """What the model says, or where it does not say, how many logits it gives."""
    return model.num_classes or int(model.cloud(model.transmit(model.edge(to_float(pictures[:2])))).shape[1])


def _run(part: str, call: Callable[[Tensor], object], x: Tensor, not_finite: str = DIVERGED) -> Tensor:
    try:
        y = call(x)
    except InputError:  # a sentence of ours already
        raise
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        text = reason(error, type(error).__name__)
        other = other_format(call) if isinstance(call, nn.Module) else None
        hint = (
            f"Its weights are {other} and what it is given is float32: use model.float(), or let the half convert what "
            "it is given and end with .float()."
        )
        raise InputError(
            f"The {part} does not accept inputs of shape {list(x.shape[1:])}: {text}.", "" if other is None else hint
        ) from None
    if not isinstance(y, Tensor) or y.ndim < 2 or len(y) != len(x):
        found = list(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise InputError(
            f"The {part} gives {found} for {len(x)} pictures.", "It should give a tensor, one row for each."
        )
    if not bool(y.isfinite().all()):
        raise InputError(f"The {part} gives values that are not finite.", not_finite)
    return y


@torch.no_grad()
def answers(model: SplitModel, pictures: Tensor, generator: torch.Generator) -> Tensor:
    """The class [N] that the model names for each of uint8 pictures, from one transmission."""
    pieces = pictures.split(CHUNK)
    return torch.cat([model.cloud(model.send(to_float(piece), generator)).argmax(1) for piece in pieces])


@torch.no_grad()
def accuracy_on(model: SplitModel, pictures: Tensor, labels: Tensor) -> float:
    """Top-1 of the model on float pictures [N, ch, h, w], clean features: SPEC 8.2's `recon_acc`.

    There, as in the code behind the notes' numbers, a picture that the model normalises is clamped to [-1, 1] after it.
    """
    normalise = getattr(model.edge, "normalise", None)
    if isinstance(normalise, Normalise):
        pictures = normalise(pictures).clamp(-1, 1) * normalise.std + normalise.mean
    right = torch.zeros((), dtype=torch.int64, device=labels.device)
    for x, y in zip(pictures.split(CHUNK), labels.split(CHUNK), strict=True):
        right += (model.cloud(model.edge(x)).argmax(1) == y).sum()
    return float(right) / len(labels)
