"""A finished run brought back to life."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from os import PathLike

from splitveil import data
from splitveil.core.config import Config
from splitveil.core.pins import other_pictures, other_settings, other_weights
from splitveil.core.run_folder import RunFolder
from splitveil.data.dataset import DataParts
from splitveil.models.split import SplitModel
from splitveil.surrogates.base import Surrogate
from splitveil.training.build import as_deployed, build_model, build_surrogate
from splitveil.training.checkpoint import load_weights
from splitveil.training.device import pick_device

log = logging.getLogger("splitveil.training")


@dataclass(frozen=True)
class LoadedRun:
    """A finished run: its folder, configuration, model (eval mode), surrogate, and the parts of its pictures."""

    folder: RunFolder
    config: Config
    model: SplitModel
    surrogate: Surrogate | None
    parts: DataParts
    doubts: tuple[str, ...] = ()  # what is not as it was when training ended

    @property
    def deployed(self) -> SplitModel:
        """The model that answers: its cloud half is the surrogate where that brings the classifier (SPEC 2.3)."""
        return as_deployed(self.model, self.surrogate)


def load_run(path: str | PathLike[str], device: str = "auto") -> LoadedRun:
    """Build the model of a run folder and load its weights, ready for evaluation or attack.

    Example: ``sv.load_run("runs/mine").model.send(pictures)``, for pictures [B, ch, h, w] in [0, 1].
    """
    folder = RunFolder.open(path)
    config = folder.config()
    weights = folder.weights()
    where = pick_device(device)
    parts = data.load(config.data, config.seed)
    model = build_model(config, parts.info)
    surrogate = build_surrogate(config, model)
    load_weights(weights, {"model": model, "surrogate": surrogate})
    model.to(where).eval()
    if surrogate is not None:
        surrogate.to(where).eval()
    doubts = _doubts(folder, parts)
    for sentence in doubts:
        log.warning("%s: %s", folder.path, sentence)
    return LoadedRun(folder, config, model, surrogate, parts.to(where), doubts)


def _doubts(folder: RunFolder, parts: DataParts) -> tuple[str, ...]:
    """What the run's own files pin and is otherwise now; a folder that lacks them says nothing."""
    result = folder.read_json("result.json") or {}
    found = {
        "The settings in config.toml are not those that this run was trained with.": other_settings(
            folder.path / "config.toml", result.get("signature")
        ),
        "The weights are not those that this run ended with.": other_weights(folder.weights(), result),
        "The pictures are not those that this run was trained with: some that it was trained on may be among those "
        "under attack.": other_pictures(result.get("signature"), f"data:{parts.checksum[:8]}"),
    }
    return tuple(sentence for sentence, holds in found.items() if holds)
