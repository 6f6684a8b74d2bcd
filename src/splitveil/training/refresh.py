"""Epoch statistics of the surrogate (SPEC 1.2), from features of the training pictures."""

from __future__ import annotations

from functools import partial

import torch

from splitveil.core.config import Config
from splitveil.core.seeding import generator
from splitveil.data.augment import Augmentation, augment
from splitveil.data.dataset import ImageSet
from splitveil.models.split import SplitModel
from splitveil.surrogates.base import Surrogate
from splitveil.training.batches import batch_size
from splitveil.training.evaluate import EVAL_BATCH, clean_features

REFRESH_BATCH = 5_000  # pictures encoded at once on a GPU


def refresh(
    surrogate: Surrogate | None,
    model: SplitModel,
    part: ImageSet,
    config: Config,
    epoch: int,
    precision: torch.dtype,
    augmentation: Augmentation | None = None,
) -> bool:
    """Let the surrogate fit what it fits once per epoch (or per `bank_every`): clean features, encoder in eval mode.

    The pictures are augmented where the surrogate's option `bank_images` says so, as the released code does. Order and
    augmentation come from streams of their own, named by the epoch. False where nothing was due.
    """
    if surrogate is None or not surrogate.refresh_needed or config.train.privacy_weight <= 0:
        return False
    if (epoch - 1) % getattr(surrogate.options, "bank_every", 1):
        return False
    size = REFRESH_BATCH if part.images.device.type == "cuda" else EVAL_BATCH
    if surrogate.refresh_in_training_batches:
        size = batch_size(config.train)
    samples = getattr(surrogate.options, "bank_samples", 0) or len(part)
    # shuffled: a sample of the classes as they are, and sequences mixed as in training
    order = torch.randperm(len(part), generator=generator(config.seed, "refresh", epoch))[:samples]
    move = None
    if augmentation is not None and getattr(surrogate.options, "bank_images", "clean") == "augmented":
        random = generator(config.seed, "refresh-augment", epoch, device=part.images.device)
        move = partial(augment, augmentation=augmentation, generator=random)
    surrogate.refresh(clean_features(model, part, precision, order=order, batch_size=size, move=move))
    return True
