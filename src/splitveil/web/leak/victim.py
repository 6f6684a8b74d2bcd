"""The model of a run as its newest checkpoint has it, finished or not."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from splitveil import data
from splitveil.core.config import Config
from splitveil.core.errors import RunFolderError
from splitveil.core.run_folder import RunFolder
from splitveil.core.sections import Data
from splitveil.data.dataset import DataParts
from splitveil.experiments.loose import number, read_rows
from splitveil.models.split import SplitModel
from splitveil.training.build import as_deployed, brings_classifier, build_model, build_surrogate
from splitveil.training.checkpoint import load_weights

DATA_SETS = 2  # kept in memory: following a live run must not read its data again for every checkpoint


@dataclass(frozen=True, eq=False)
class Victim:
    """A model under attack, on the CPU, in eval mode, without gradients."""

    config: Config
    parts: DataParts
    model: SplitModel
    version: str
    epoch: int | None


class DataSets:
    """The parts of recently used data sets."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, DataParts] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, config: Data, seed: int) -> DataParts:
        key = f"{config.model_dump_json()}/{seed}"
        with self._lock:
            parts = self._kept.pop(key, None) or data.load(config, seed)
            self._kept[key] = parts
            while len(self._kept) > DATA_SETS:
                self._kept.popitem(last=False)
            return parts


def checkpoints(folder: Path) -> list[Path]:
    """Files with weights, best first: the finished model, else the states of a run that goes on, newest first."""
    stored = folder / "checkpoints"
    model = stored / "model.safetensors"
    return [model] if model.is_file() else sorted(stored.glob("state-*.safetensors"), reverse=True)


def version(folder: Path) -> str | None:
    """Changes with the newest checkpoint; None where there is none."""
    for path in checkpoints(folder):
        try:
            facts = path.stat()
        except OSError:  # deleted a moment ago, when a newer one came
            continue
        return f"{path.name}/{facts.st_size}/{facts.st_mtime_ns}"
    return None


def load_victim(folder: Path, data_sets: DataSets) -> Victim:
    """Build the model of a run and put the newest intact weights into it."""
    mark = version(folder)
    if mark is None:
        raise RunFolderError("This run has no checkpoint yet.", "Wait for its first one.")
    config = RunFolder.open(folder).config()
    parts = data_sets.get(config.data, config.seed)
    model = build_model(config, parts.info)
    classifier = build_surrogate(config, model) if brings_classifier(config.surrogate) else None
    reason = ""
    for path in checkpoints(folder):
        try:
            load_weights(path, {"model": model, "surrogate": classifier})
        except RunFolderError as error:
            reason = error.message
            continue
        deployed = as_deployed(model, classifier).eval().requires_grad_(False)
        return Victim(config, parts, deployed, mark, _epoch(path, folder))
    raise RunFolderError(f"The weights of this run cannot be read. {reason}", "Train the run again.")


def _epoch(path: Path, folder: Path) -> int | None:
    if path.stem.startswith("state-"):
        return int(path.stem.removeprefix("state-"))
    rows, _, _ = read_rows(folder / "metrics.jsonl")
    return max((int(epoch) for row in rows if (epoch := number(row.get("epoch"))) is not None), default=None)
