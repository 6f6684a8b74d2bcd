"""An artefact as a torch model again, from `model.safetensors` and `config.toml`: for white-box audits and fine-tuning.

Neither the data set nor the run is needed: shapes and normalisation are in the manifest.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import Any

from splitveil.core.config import Config
from splitveil.core.errors import ArtefactError, UnknownNameError
from splitveil.data.augment import Augmentation
from splitveil.data.dataset import DatasetInfo, ImageSet
from splitveil.models.split import SplitModel
from splitveil.serving.artefact import AGAIN, Artefact
from splitveil.serving.checks import agreement
from splitveil.serving.graphs import CloudGraph, EdgeGraph, random_inputs
from splitveil.serving.halves import CloudHalf, EdgeHalf
from splitveil.serving.manifest import CONFIG, WEIGHTS, Defence
from splitveil.surrogates.base import Surrogate
from splitveil.training.build import build_model, build_surrogate
from splitveil.training.checkpoint import load_weights


@dataclass(frozen=True)
class Twin:
    """The model of an artefact in torch, in eval mode; `classifier` where a surrogate answers in the cloud's place."""

    config: Config
    model: SplitModel
    classifier: Surrogate | None


def load_twin(artefact: Artefact) -> Twin:
    """Build what `config.toml` says and load `model.safetensors` into it."""
    manifest = artefact.manifest
    # not load_config: the artefact may lie on a machine that has no such data set
    try:
        config = Config.parse(tomllib.loads(artefact.load(CONFIG).decode()), "")
    except UnknownNameError as error:
        raise UnknownNameError(
            error.message,
            f"Install the package that offers it; or audit a copy without {CONFIG} and {WEIGHTS}, through its graphs.",
        ) from None
    model = build_model(config, _info(artefact))
    surrogate = build_surrogate(config, model) if manifest.classifier == "attention" else None
    artefact.load(WEIGHTS)  # is it the file that the manifest names?
    load_weights(artefact.path / WEIGHTS, {"model": model, "surrogate": surrogate})
    model.eval()
    return Twin(config, model, None if surrogate is None else surrogate.eval())


def facts(config: Config) -> dict[str, Any]:
    """What a manifest says of a recipe."""
    defences = [Defence(name=name, options=options.model_dump(mode="json")) for name, options in config.defence.items()]
    return {
        "seed": config.seed,
        "model": config.model.name,
        "cut": config.model.cut,
        "surrogate": getattr(config.surrogate, "name", None),
        "defences": tuple(defences),
    }


def check_twin(artefact: Artefact, twin: Twin, pictures: ImageSet) -> None:
    """Refuse an artefact whose graphs are not what its weights and its recipe say, seen on `pictures`; and one whose
    manifest boasts of another recipe.
    """
    for name, fact in facts(twin.config).items():
        # whoever read the artefact has compared the defences, as they are written: claims.py
        if name != "defences" and getattr(artefact.manifest, name) != fact:
            raise ArtefactError(f"The manifest of {artefact.path} names other {name} than its recipe.", AGAIN)
    what = f"The graphs of {artefact.path} are not those of its weights"
    if random_inputs(twin.model, artefact.manifest.input.shape) != artefact.manifest.random:
        raise ArtefactError(f"{what}: they draw other random numbers.", AGAIN)
    edge, cloud = EdgeHalf(artefact), CloudHalf(artefact)
    edge_graph = EdgeGraph(twin.model, artefact.manifest.random).eval()
    try:
        agreement(edge, cloud, edge_graph, CloudGraph(twin.model, twin.classifier).eval(), pictures)
    except ArtefactError as error:
        raise ArtefactError(f"{what}: {error.message[:1].lower()}{error.message[1:]}", AGAIN) from None


def _info(artefact: Artefact) -> DatasetInfo:
    manifest = artefact.manifest
    return DatasetInfo(
        name=manifest.data.get("name", ""),
        num_classes=manifest.num_classes,
        image_shape=manifest.input.shape,
        class_names=manifest.class_names,
        mean=manifest.input.mean,
        std=manifest.input.std,
        augmentation=Augmentation(),
        licence="",
        source="",
    )
