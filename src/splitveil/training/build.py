"""From a configuration to the objects it describes."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

from splitveil import defences, models, surrogates
from splitveil.core.config import Config
from splitveil.core.errors import ConfigError
from splitveil.data.dataset import DatasetInfo
from splitveil.defences.base import Defence
from splitveil.models.split import SplitModel
from splitveil.surrogates.base import Surrogate


def build_model(config: Config, info: DatasetInfo) -> SplitModel:
    """The split network with its defences installed, in the order in which the recipe names them."""
    model = models.create(
        config.model.name,
        image_shape=info.image_shape,
        num_classes=info.num_classes,
        cut=config.model.cut,
        output=config.model.output,
        mean=info.mean,
        std=info.std,
    )
    for name, options in config.defence.items():
        defence: Defence = defences.create(name, **options.model_dump())
        defence.install(model)
        model.defences[name] = defence
    for installed in defences_of(model):
        installed.attach(model)
    return model


def total_sigma(model: SplitModel) -> float:
    """Standard deviation of all the noise the defences add (SPEC 0.1: rms of the total)."""
    return math.sqrt(sum(defence.noise_power() for defence in defences_of(model)))


def defences_of(model: SplitModel) -> list[Defence]:
    """The defences of a model, in the order in which they act."""
    return [defence for defence in model.defences.values() if isinstance(defence, Defence)]


def build_surrogate(config: Config, model: SplitModel) -> Surrogate | None:
    """The surrogate of a recipe, or None."""
    if config.surrogate is None:
        return None
    options: dict[str, Any] = config.surrogate.model_dump()
    name = options.pop("name")
    if "sigmoid_output" in options:  # the released code takes more clusters where features are unbounded (SPEC 1.2)
        options["sigmoid_output"] = config.model.output == "sigmoid"
    if model.num_classes is None:
        raise ConfigError("A surrogate needs to know the number of classes.")
    return surrogates.create(
        name,
        feature_shape=model.feature_shape,
        num_classes=model.num_classes,
        sigma=total_sigma(model),
        **options,
    )


def brings_classifier(options: object) -> bool:
    """Whether a surrogate with these options answers in place of the cloud half (SPEC 2.3)."""
    return getattr(options, "classifier", "cloud") == "attention"


def own_classifier(surrogate: Surrogate | None) -> Surrogate | None:
    """The surrogate where it answers in place of the cloud half, else None."""
    return surrogate if surrogate is not None and brings_classifier(surrogate.options) else None


class OwnClassifier(nn.Module):
    """What was sent -> logits, by a surrogate that brings its own classifier."""

    def __init__(self, surrogate: Surrogate) -> None:
        super().__init__()
        self.surrogate = surrogate

    def forward(self, sent: Tensor) -> Tensor:
        logits: Tensor = self.surrogate.classify(sent).logits  # type: ignore[operator]
        return logits


def as_deployed(model: SplitModel, surrogate: Surrogate | None) -> SplitModel:
    """The model that answers: `model` itself, or its edge half and defences with the surrogate's classifier behind.

    Where a surrogate brings the classifier the cloud half was never trained, so whoever judges the answers (an audit)
    must not ask it. Nothing is copied: both models share their modules.
    """
    classifier = own_classifier(surrogate)
    if classifier is None:
        return model
    deployed = SplitModel(
        model.edge, OwnClassifier(classifier), image_shape=model.image_shape, num_classes=model.num_classes
    )
    deployed.defences = model.defences
    deployed.train(model.training)
    return deployed
