"""Fine-tuning: `train.init_from = "RUN"` starts from the weights of a finished run (SPEC 6.4, 6.7).

Edge and cloud must have the same shapes. Parameters of defences are taken over where both runs have them, the
surrogate's state where both runs use the same surrogate; everything else starts fresh: the optimiser, and adversaries
inside defences (`pretrain_epochs` lets them catch up).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from splitveil.core.config import Config
from splitveil.core.dotted import below
from splitveil.core.errors import ConfigError
from splitveil.core.files import sha256
from splitveil.core.run_folder import RunFolder, starting_run
from splitveil.models.split import SplitModel
from splitveil.surrogates.base import Surrogate
from splitveil.training.checkpoint import read_weights

log = logging.getLogger("splitveil.training")


@dataclass(frozen=True)
class StartingPoint:
    """The finished run whose weights another one starts from."""

    folder: RunFolder
    weights: Path

    @classmethod
    def of(cls, config: Config) -> StartingPoint | None:
        """The run that `train.init_from` names, or None."""
        folder = starting_run(config)
        return None if folder is None else cls(folder, folder.weights())

    def facts(self) -> dict[str, Any]:
        """What the manifest keeps: the run's name, not its path; the checksum of its weights; its signature."""
        result = self.folder.read_json("result.json") or {}
        return {"run": self.folder.name, "sha256": sha256(self.weights), "signature": result.get("signature")}

    def load_into(self, model: SplitModel, surrogate: Surrogate | None, data_checksum: str) -> None:
        """Copy the weights; ConfigError where edge or cloud have another shape."""
        tensors = read_weights(self.weights)
        self._load_model(model, below("model.", tensors))
        if surrogate is not None:
            self._load_surrogate(surrogate, below("surrogate.", tensors))
        before = (self.folder.read_json("manifest.json") or {}).get("data", {}).get("checksum")
        if before != data_checksum:
            log.warning(
                "train.init_from: %s was trained on other pictures or other parts of them; "
                "it may have seen what this run holds out",
                self.folder.name,
            )

    def check(self, model: SplitModel, given: Mapping[str, Tensor]) -> None:
        """ConfigError where edge or cloud have another shape."""
        own = model.state_dict()
        halves = [key for key in own.keys() | given.keys() if not key.startswith("defences.")]
        wrong = sorted(key for key in halves if _shape(own, key) != _shape(given, key))
        if wrong:
            key = wrong[0]
            raise ConfigError(
                f"train.init_from: the network of {self.folder.name} differs: {key} is {_shape(given, key)} there and "
                f"{_shape(own, key)} here ({len(wrong)} such tensors).",
                "Use the same data set, model, cut and layers of defences (bottleneck, sca).",
            )

    def _load_model(self, model: SplitModel, given: Mapping[str, Tensor]) -> None:
        self.check(model, given)
        own = model.state_dict()
        fitting = {key: value for key, value in given.items() if _shape(own, key) == _shape(given, key)}
        _load(model, fitting)
        fresh = sorted({key.split(".")[1] for key in model.deployed_state().keys() - fitting.keys()})
        log.info("starting from %s%s", self.folder.name, f"; defence {', '.join(fresh)} starts fresh" if fresh else "")

    def _load_surrogate(self, surrogate: Surrogate, given: Mapping[str, Tensor]) -> None:
        own = surrogate.state_dict()
        same = getattr(self.folder.config().surrogate, "name", None) == surrogate.options.name
        if same and own.keys() == given.keys() and all(_shape(own, key) == _shape(given, key) for key in own):
            _load(surrogate, given)
        else:
            log.info("the surrogate starts fresh: %s has none of this kind and size", self.folder.name)


def start_from(config: Config, model: SplitModel, surrogate: Surrogate | None, data_checksum: str) -> None:
    """Load what `train.init_from` names, if anything. `data_checksum`: of the parts that this run trains on."""
    start = StartingPoint.of(config)
    if start is not None:
        start.load_into(model, surrogate, data_checksum)


def check_starting_run(config: Config, model: SplitModel) -> None:
    """Refuse a run to start from, if one is named, whose network has another shape."""
    start = StartingPoint.of(config)
    if start is not None:
        start.check(model, below("model.", read_weights(start.weights)))


def starting_facts(folder: RunFolder, config: Config, resume: bool) -> dict[str, Any] | None:
    """Where a fine-tuned run starts from. Once it has a checkpoint of its own, what it started from may be gone."""
    before = (folder.read_json("manifest.json") or {}).get("init_from") if resume else None
    if before is not None and any(folder.checkpoints.glob("state-*.json")):
        return before
    start = StartingPoint.of(config)
    facts = None if start is None else start.facts()
    if before is not None and before != facts:
        raise ConfigError(
            f"train.init_from: {config.train.init_from} has changed since this run began.",
            "Start again in another folder.",
        )
    return facts


def _shape(state: Mapping[str, Tensor], key: str) -> str:
    return "absent" if key not in state else "x".join(map(str, state[key].shape)) or "a number"


def _load(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    module.load_state_dict(dict(state), strict=False)  # what is missing was looked at above
