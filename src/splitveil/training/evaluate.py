"""Accuracy under exactly the transmission that is attacked, and features for refresh and for the collapse guard."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from splitveil.core.config import Config
from splitveil.core.errors import TrainingError
from splitveil.core.seeding import generator as stream
from splitveil.data.dataset import DataParts, ImageSet
from splitveil.models.split import SplitModel, evaluating
from splitveil.surrogates.base import Surrogate
from splitveil.training.build import as_deployed
from splitveil.training.precision import autocast, network_input

EVAL_BATCH = 1000


@torch.no_grad()
def accuracy(
    model: SplitModel,
    part: ImageSet,
    generator: torch.Generator | None,
    *,
    precision: torch.dtype = torch.float32,
) -> Tensor:
    """Share of pictures classified correctly, as a 0-dim tensor on the device.

    What is sent is float32 whatever the training steps compute in: an audit attacks float32 features, and a feature
    rounded to bfloat16 would be another transmission. `precision` is that of the cloud half. Where something is sent
    that is not finite there is no accuracy: a classifier names some class all the same.
    """
    device = part.images.device
    correct = torch.zeros((), device=device, dtype=torch.long)
    spoiled = torch.zeros((), device=device, dtype=torch.long)
    with evaluating(model):
        for images, labels in zip(part.images.split(EVAL_BATCH), part.labels.split(EVAL_BATCH), strict=True):
            sent = model.send(network_input(images), generator)
            spoiled += (~sent.isfinite().flatten(1).all(dim=1)).sum()
            with autocast(device, precision):
                correct += (model.cloud(sent).argmax(dim=1) == labels).sum()
    if count := int(spoiled):
        raise TrainingError(
            f"In evaluation mode the model sends values that are not finite, for {count} of {len(part)} pictures.",
            "Where training diverged at the end of the epoch, lower train.lr; else look at what behaves otherwise "
            "there than in training: the running statistics of a normalisation, or a layer or defence of your own.",
        )
    return correct.float() / max(len(part), 1)


@torch.no_grad()
def clean_features(
    model: SplitModel,
    part: ImageSet,
    precision: torch.dtype = torch.float32,
    *,
    order: Tensor | None = None,
    batch_size: int = EVAL_BATCH,
    move: Callable[[Tensor], Tensor] | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Clean features (no noise), encoder in eval mode (SPEC 1.2), batch by batch, of the pictures in `order`.

    `move` may augment the pictures of a batch.
    """
    with evaluating(model):
        device = part.images.device
        if order is not None:
            part = part.subset(order)
        for images, labels in zip(part.images.split(batch_size), part.labels.split(batch_size), strict=True):
            images = images if move is None else move(images)
            with autocast(device, precision):
                z = model.edge(network_input(images))
            yield z.float(), labels


class Evaluator:
    """Accuracy after an epoch, and the number that the collapse guard looks at."""

    def __init__(
        self,
        model: SplitModel,
        surrogate: Surrogate | None,
        parts: DataParts,
        config: Config,
        precision: torch.dtype,
    ) -> None:
        self.model, self.surrogate, self.parts, self.precision = model, surrogate, parts, precision
        self.train, self.seed = config.train, config.seed
        self.deployed = as_deployed(model, surrogate)

    def epoch(self, epoch: int) -> dict[str, Any]:
        """Accuracy on validation pictures; on test pictures only in the last eighth, which nothing is chosen by.

        Protocol `published` has no validation part of its own and follows the paper: test accuracy throughout.
        """
        train, began = self.train, time.monotonic()
        late = epoch > train.epochs - max(1, train.epochs // 8)
        if not (late or epoch % train.eval_every == 0):
            return {}
        published = self.parts.protocol == "published"
        row: dict[str, Any] = {}
        if published or late or train.select == "test_best":
            row["test_accuracy"] = self.accuracy(self.parts.test, epoch)
        row["accuracy"] = row["test_accuracy"] if published else self.accuracy(self.parts.val, epoch)
        if self.surrogate is not None:
            row["feature_spread"] = self.feature_spread()
        row["eval_seconds"] = time.monotonic() - began
        return row

    def accuracy(self, part: ImageSet, epoch: int) -> float:
        """Share of `part` classified correctly, with the noise that belongs to `epoch`."""
        random = stream(self.seed, "evaluate", epoch, device=part.images.device)
        return float(accuracy(self.deployed, part, random, precision=self.precision))

    def feature_spread(self) -> float:
        """Root mean variance of clean features over pictures: 0 when the encoder has become a constant."""
        z = next(iter(clean_features(self.model, self.parts.val, self.precision)))[0]
        return float(z.flatten(1).var(dim=0, unbiased=False).mean().sqrt())
