"""Accuracy under exactly the transmission that is attacked, and features for refresh and for the collapse guard."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from splitveil.data.augment import to_float
from splitveil.data.dataset import ImageSet
from splitveil.models.split import SplitModel

EVAL_BATCH = 1000


@torch.no_grad()
def accuracy(
    model: SplitModel,
    part: ImageSet,
    generator: torch.Generator | None,
    *,
    precision: torch.dtype = torch.float32,
    classify: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Share of pictures classified correctly, as a 0-dim tensor on the device (read it when you need it).

    `classify` replaces the cloud half where a surrogate brings its own classifier path (SPEC 2.3).
    """
    modes = _eval(model)
    device = part.images.device
    correct = torch.zeros((), device=device, dtype=torch.long)
    head = classify or model.cloud
    with torch.autocast(device.type, dtype=precision, enabled=precision is not torch.float32):
        for images, labels in zip(part.images.split(EVAL_BATCH), part.labels.split(EVAL_BATCH), strict=True):
            sent = model.send(to_float(images).contiguous(memory_format=torch.channels_last), generator)
            correct += (head(sent).argmax(dim=1) == labels).sum()
    _restore(modes)
    return correct.float() / max(len(part), 1)


@torch.no_grad()
def clean_features(
    model: SplitModel,
    part: ImageSet,
    precision: torch.dtype = torch.float32,
    *,
    order: Tensor | None = None,
    batch_size: int = EVAL_BATCH,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Clean features (no noise), encoder in eval mode (SPEC 1.2), batch by batch, of the pictures in `order`."""
    modes = _eval(model)
    try:
        device = part.images.device
        if order is not None:
            part = part.subset(order)
        for images, labels in zip(part.images.split(batch_size), part.labels.split(batch_size), strict=True):
            with torch.autocast(device.type, dtype=precision, enabled=precision is not torch.float32):
                z = model.edge(to_float(images).contiguous(memory_format=torch.channels_last))
            yield z.float(), labels
    finally:
        _restore(modes)


def _eval(model: SplitModel) -> dict[torch.nn.Module, bool]:
    modes = {module: module.training for module in model.modules()}
    model.eval()
    return modes


def _restore(modes: dict[torch.nn.Module, bool]) -> None:
    for module, mode in modes.items():
        module.training = mode
