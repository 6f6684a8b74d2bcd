"""What a run keeps on disk while it trains: the state to resume from, the best epoch's weights, and the final ones."""

from __future__ import annotations

import copy
import logging
import math
import time
from typing import Any

import torch
from torch import nn

from splitveil.core.run_folder import RunFolder
from splitveil.core.sections import Train
from splitveil.models.split import SplitModel
from splitveil.surrogates.base import Surrogate
from splitveil.training import distributed
from splitveil.training.checkpoint import load_state, load_weights, save_state, save_weights, take_state
from splitveil.training.gates import GateLog
from splitveil.training.guards import Guards

log = logging.getLogger("splitveil.training")

SAVE_SECONDS = 20.0  # without train.checkpoint_every: at most this much work is lost to a crash
RESET_EPOCHS = (40, 100, 200)  # the released code forgets its best test accuracy after these (SPEC 6.7)

# keys that every line of metrics.jsonl has (DESIGN 2): null where nothing, or no finite number, was measured
LINE = ("epoch", "task_loss", "rob_loss", "intra_mse", "accuracy", "lr", "seconds")


class Keeper:
    """Writes (in the main process) and restores everything that a run is made of."""

    def __init__(
        self,
        folder: RunFolder,
        train: Train,
        model: SplitModel,
        surrogate: Surrogate | None,
        optimiser: torch.optim.Optimizer,
        guards: Guards,
        gates: GateLog,
    ) -> None:
        self.folder, self.train, self.optimiser = folder, train, optimiser
        self.guards, self.gates = guards, gates
        self.modules: dict[str, nn.Module | None] = {"model": model, "surrogate": surrogate}
        # optimisers of the adversaries inside defences, by the defence's name
        named = {name: defence.optimiser for name, defence in model.defences.items()}
        self.adversaries = {name: o for name, o in named.items() if isinstance(o, torch.optim.Optimizer)}
        self.best = -1.0
        self.saved = time.monotonic()
        # epoch, state and facts of the last finished epoch, as long as they are not on disk
        self.unsaved: tuple[int, dict[str, torch.Tensor], dict[str, Any]] | None = None

    def keep(self, epoch: int, row: dict[str, Any]) -> None:
        """After an epoch: its line in metrics.jsonl, and a checkpoint where one is due."""
        if not distributed.is_main():
            return
        numbers = {key: value for key, value in row.items() if _is_number(value)}
        self.folder.append_metrics({**{key: None for key in row if key in LINE}, **numbers})
        every = self.train.checkpoint_every
        due = epoch % every == 0 if every else time.monotonic() - self.saved > SAVE_SECONDS
        keep = self.train.keep_every
        # a copy: the next epoch changes all of it, and a run may be stopped in the middle of that epoch
        facts = copy.deepcopy({"best": self.best, **self.guards.state(), "gate_calls": self.gates.calls})
        self.unsaved = (epoch, take_state(self.modules, self.optimiser, self.adversaries), facts)
        if due or epoch == self.train.epochs or (keep and epoch % keep == 0):
            self.save()

    def save(self) -> None:
        """Write the state after the last finished epoch, where that is not on disk yet."""
        if self.unsaved is not None:
            epoch, tensors, facts = self.unsaved
            save_state(self.folder.checkpoints, epoch, tensors, facts, self.train.keep_every)
            self.unsaved, self.saved = None, time.monotonic()

    def keep_best(self, epoch: int, row: dict[str, Any]) -> None:
        """Weights of the best epoch so far, where `train.select` asks for them."""
        select = self.train.select
        if select == "test_best" and epoch - 1 in RESET_EPOCHS:
            self.best = -1.0
        key = {"val_best": "accuracy", "test_best": "test_accuracy"}.get(select)
        if key is not None and row.get(key) is not None and row[key] > self.best:
            self.best = row[key]
            if distributed.is_main():
                save_weights(self.folder.checkpoints / "best.safetensors", self.modules)

    def resume(self) -> int:
        """Restore the newest intact checkpoint; returns its epoch, 0 where there is none."""
        facts = load_state(self.folder.checkpoints, self.modules, self.optimiser, self.adversaries)
        epoch = int(facts.get("epoch", 0))
        self.best = float(facts.get("best", -1.0))
        self.guards.restore(facts)
        self.gates.calls = int(facts.get("gate_calls", 0))
        if distributed.is_main():
            self.folder.truncate_metrics(epoch)
        distributed.barrier()
        if epoch:
            log.info("resuming after epoch %d", epoch)
        return epoch

    def finish(self) -> None:
        """Write model.safetensors: the last epoch's weights, or the selected ones (which are loaded as well)."""
        best = self.folder.checkpoints / "best.safetensors"
        if self.train.select != "last" and best.exists():
            load_weights(best, self.modules)
        if distributed.is_main():
            save_weights(self.folder.checkpoints / "model.safetensors", self.modules)
        distributed.barrier()

    def converged(self) -> bool:
        """No gain in validation accuracy and relative loss change < 1e-3 over 10 epochs (SPEC 6.7)."""
        rows = [row for row in self.folder.metrics() if row.get("accuracy") is not None]
        if len(rows) <= 10:
            return False
        before, now = rows[:-10], rows[-10:]
        gained = max(r["accuracy"] for r in now) > max(r["accuracy"] for r in before)
        change = abs(now[-1]["task_loss"] - now[0]["task_loss"]) / max(abs(now[0]["task_loss"]), 1e-12)
        return not gained and change < 1e-3


def _is_number(value: Any) -> bool:
    """What has a place in metrics.jsonl: JSON knows no infinity, and a damaged number must not end a run."""
    return value is not None and math.isfinite(value)
