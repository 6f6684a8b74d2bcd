"""Attribute inference: what else than the picture can be read from what was sent, and from its reconstruction?

For each attribute of the attacker's own pictures (their class, brightness, or what the audit was given) one classifier
on fresh transmissions and one on pictures, the latter applied to the best reconstruction so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from splitveil.attacks.base import Attack, Inference, NotApplicableError, Progress, ThreatModel, silent
from splitveil.attacks.epochs import run_epochs
from splitveil.attacks.initialising import seeded
from splitveil.attacks.queries import CHUNK
from splitveil.attacks.view import View
from splitveil.core.options import Options as AnyOptions
from splitveil.data.augment import to_float

Inputs = Callable[[Tensor, torch.Generator], Tensor]
"""What a classifier reads of the pictures at an index [B]; the stream is for what must be fresh in every batch."""


class AttributeOptions(AnyOptions):
    """Size and training of the classifiers."""

    hidden: int = Field(256, ge=1, description="width of the hidden layer of each classifier")
    epochs: int = Field(20, ge=1, description="passes over the adversary's pictures")
    batch_size: int = Field(128, ge=2, description="pictures per step")
    lr: float = Field(1e-3, gt=0, description="rate of Adam at the start of its cosine schedule")


class AttributeAttack(Attack):
    """See the module docstring."""

    name = "attribute"
    threat_model = ThreatModel(features=True, queries=True, auxiliary=True, labels=True)
    Options = AttributeOptions
    options: AttributeOptions

    def run(self, view: View, progress: Progress = silent) -> Inference:
        if not view.attributes:
            raise NotApplicableError("Nothing is known about the attacker's pictures that could be inferred.")
        made = view.reconstruction("decoder_strong") or view.reconstruction("decoder")
        queries, own = view.query(view.auxiliary, tamed=True), view.auxiliary
        rounds = len(view.attributes) * (2 if made is not None else 1)
        predictions: dict[str, Tensor] = {}
        for name, values in view.attributes.items():
            generator = view.generator(self.name, name)
            model = self._fit(
                lambda index, stream: queries.batch(index, stream)[0], math.prod(view.feature_shape), values, generator
            )
            predictions[f"{name} from feature"] = _predict(model, view.taming(view.sent))
            progress(self.name, len(predictions), rounds)
            if made is not None:
                model = self._fit(lambda index, _: to_float(own[index]), math.prod(view.image_shape), values, generator)
                predictions[f"{name} from reconstruction"] = _predict(model, made.images)
                progress(self.name, len(predictions), rounds)
        return Inference(predictions=predictions, details=self.options.model_dump())

    def _fit(self, inputs: Inputs, width: int, values: Tensor, generator: torch.Generator) -> nn.Module:
        options = self.options
        with seeded(generator):
            model = nn.Sequential(
                nn.Flatten(),
                nn.BatchNorm1d(width),
                nn.Linear(width, options.hidden),
                nn.ReLU(),
                nn.Linear(options.hidden, int(values.max()) + 1),
            ).to(generator.device)
        run_epochs(
            [model],
            lambda index: F.cross_entropy(model(inputs(index, generator)), values[index]),
            len(values),
            generator,
            epochs=options.epochs,
            batch_size=options.batch_size,
            lr=options.lr,
            weight_decay=1e-4,
            smallest=2,  # batch norm cannot use a batch of one
        )
        return model.eval()


@torch.no_grad()
def _predict(model: nn.Module, inputs: Tensor) -> Tensor:
    return torch.cat([model(piece).argmax(1) for piece in inputs.split(CHUNK)])
