"""Batches from pictures that live on the device: one permutation per epoch, augmentation in blocks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from splitveil.core.errors import ConfigError
from splitveil.core.sections import Train
from splitveil.core.seeding import generator
from splitveil.data.augment import Augmentation, augment
from splitveil.data.dataset import ImageSet

BLOCK = 64  # batches augmented together: large enough for a GPU, small enough for any memory


def batch_size(train: Train) -> int:
    """Pictures per step over all processes: P·Q where batches are balanced."""
    return train.balanced_batches[0] * train.balanced_batches[1] if train.balanced_batches else train.batch_size


def num_steps(size: int, batch_size: int) -> int:
    """Full batches per epoch: every picture at least once, the last batch filled up (SPEC 6.1)."""
    if size < batch_size:
        raise ConfigError(
            f"train.batch_size = {batch_size} is larger than the {size} training pictures.", "Lower the batch size."
        )
    return -(-size // batch_size)


def epoch_order(labels: Tensor, batch_size: int, seed: int, epoch: int, balanced: tuple[int, int] | None) -> Tensor:
    """Indices of one epoch, [steps · batch_size], drawn on the CPU so that every device sees the same order.

    `batch_size` is P·Q where batches are balanced; an epoch then has as many pictures, but not each exactly once.
    """
    random = generator(seed, "order", epoch)
    size = len(labels)
    steps = num_steps(size, batch_size)
    if balanced is not None:
        return _balanced_order(labels.cpu(), steps, balanced, random)
    first = torch.randperm(size, generator=random)
    return torch.cat([first, torch.randperm(size, generator=random)])[: steps * batch_size]


def check_balanced(labels: Tensor, balanced: tuple[int, int]) -> Tensor:
    """The classes that are present; ConfigError where they cannot fill batches of P classes x Q samples."""
    present, counts = labels.unique(return_counts=True)
    if balanced[0] > len(present) or balanced[1] > int(counts.min()):
        raise ConfigError(
            f"train.balanced_batches = {balanced[0]} x {balanced[1]} asks for more than the data hold "
            f"({len(present)} classes, the smallest with {int(counts.min())} pictures)."
        )
    return present


def _balanced_order(labels: Tensor, steps: int, balanced: tuple[int, int], random: torch.Generator) -> Tensor:
    """P classes x Q samples per batch (SPEC 9 f), classes and samples drawn without replacement inside a batch."""
    classes_per_batch, samples = balanced
    present = check_balanced(labels, balanced)
    members = [torch.nonzero(labels == c).flatten() for c in present]
    batches = []
    for _ in range(steps):
        chosen = torch.randperm(len(present), generator=random)[:classes_per_batch]
        picks = [members[int(c)][torch.randperm(len(members[int(c)]), generator=random)[:samples]] for c in chosen]
        batches.append(torch.cat(picks))
    return torch.cat(batches)


def training_batches(
    part: ImageSet, order: Tensor, batch_size: int, augmentation: Augmentation | None, random: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (uint8 pictures, labels), augmented on the device block by block."""
    order = order.to(part.images.device)
    for block in order.split(BLOCK * batch_size):
        images, labels = part.images[block], part.labels[block]
        if augmentation is not None:
            images = augment(images, augmentation, random)
        yield from zip(images.split(batch_size), labels.split(batch_size), strict=True)
