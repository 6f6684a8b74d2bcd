"""The training loop, to be read top to bottom.

    for each epoch:  set rates -> for each batch: step -> evaluate -> refresh epoch statistics -> guards -> log, save

Every random draw comes from a stream named by purpose and epoch, so a run that stops after any epoch continues exactly
as if it had not stopped. What surrounds the loop: `setup` (before the first step), `evaluate`, `refresh`, `guards` and
`keeping` (after each epoch).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch

from splitveil.core.config import Config
from splitveil.core.run_folder import RunFolder
from splitveil.core.seeding import derive_seed, generator
from splitveil.data.dataset import DataParts
from splitveil.functional.adam import set_rate
from splitveil.functional.guessing import most_frequent
from splitveil.models.split import SplitModel, buffers_kept
from splitveil.surrogates.base import Surrogate
from splitveil.training import distributed
from splitveil.training.batches import batch_size, epoch_order, num_steps, training_batches
from splitveil.training.build import build_model, build_surrogate, defences_of, total_sigma
from splitveil.training.capture import CapturedStep
from splitveil.training.evaluate import Evaluator, clean_features
from splitveil.training.fine_tune import start_from
from splitveil.training.gate_maps import store_gates
from splitveil.training.gates import GateLog, learned_scalars
from splitveil.training.guards import NEVER_ACTED, Guards
from splitveil.training.keeping import Keeper
from splitveil.training.precision import number_format
from splitveil.training.refresh import refresh
from splitveil.training.repair import repair_statistics
from splitveil.training.schedule import first_active, is_active, learning_rate, lr_factor, privacy_weight, stage
from splitveil.training.setup import check_recipe, make_optimiser, make_step, tell_active
from splitveil.training.tracking import EpochCallback

log = logging.getLogger("splitveil.training")


class Engine:
    """One run: data, model, surrogate and optimiser of a configuration, and the loop over them."""

    def __init__(self, config: Config, parts: DataParts, folder: RunFolder, device: torch.device) -> None:
        self.config, self.folder, self.device, train = config, folder, device, config.train
        self.parts = parts.to(device)
        self.augmentation = parts.info.augmentation if config.data.augment else None
        self.rank, self.world = distributed.world()
        torch.manual_seed(derive_seed(config.seed, "weights"))
        self.model: SplitModel = build_model(config, parts.info)
        self.surrogate: Surrogate | None = build_surrogate(config, self.model)
        self.model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        if self.surrogate is not None:
            self.surrogate.to(device)
        for defence in defences_of(self.model):
            defence.start()
        check_recipe(config, parts, self.world)
        self.precision = number_format(train, device)
        self.optimiser = make_optimiser(self.model, self.surrogate, train, device)
        self.steps = num_steps(len(parts.train), batch_size(train))
        steps = train.epochs * self.steps
        self.step, self.run_step = make_step(self.model, self.surrogate, self.optimiser, config, device, steps)
        self.guards = Guards(train, parts.info.num_classes, total_sigma(self.model), most_frequent(parts.val.labels))
        self.gates = GateLog()
        self.evaluator = Evaluator(self.model, self.surrogate, self.parts, config, self.precision)
        self.keeper = Keeper(folder, train, self.model, self.surrogate, self.optimiser, self.guards, self.gates)
        self.epoch = 0

    def run(self, on_epoch: EpochCallback | None = None, resume: bool = False) -> None:
        """Train from the beginning, or from the last intact checkpoint."""
        active = tell_active(self.config, self.model)
        if resume:
            self.epoch = self.keeper.resume()
        if not active:
            self.guards.counts[NEVER_ACTED] = 1  # the warning is said; this is for result.json and whoever reads it
        if self.epoch == 0:
            start_from(self.config, self.model, self.surrogate, self.parts.checksum)
            self._pretrain()
        try:
            self._epochs(on_epoch)
        except KeyboardInterrupt:  # told to stop, inside any epoch: the state after the one before it is still there
            self.keeper.save()
            raise
        self.keeper.finish()

    def _epochs(self, on_epoch: EpochCallback | None) -> None:
        while self.epoch < self.config.train.epochs and not self._converged():
            self.epoch += 1
            row = self._train_epoch()
            self._repair(row)
            self.guards.check_steps(row)
            row |= self._evaluate()
            row |= self._refresh()
            self.keeper.keep_best(self.epoch, row)
            self.guards.check(row)
            self._store_gates()
            self.keeper.keep(self.epoch, row)
            if on_epoch is not None:
                on_epoch(row)

    def _train_epoch(self) -> dict[str, Any]:
        train, epoch = self.config.train, self.epoch
        began = time.monotonic()
        lr = learning_rate(train, epoch)
        weight = privacy_weight(train, epoch)
        factor = lr_factor(train.wlr, lr, fine_tuning=train.init_from is not None)
        self._set_rates(lr, weight, factor)
        self._seed_streams()
        self._tell_defences()
        self.model.train()
        if self.surrogate is not None:
            self.surrogate.train()
        self.step.reset(max(0, epoch - first_active(train)) * self.steps)
        # stage 2 of `progressive` trains φ alone: not even the statistics of batch normalisation move
        with buffers_kept(self.model) if self.step.stage == "adapt" else nullcontext():
            for images, labels in self._batches(epoch):
                self.run_step(images, labels)
                self.gates.look(self.step)
        means = self.step.read()
        self.gates.write(epoch)
        scale = self.surrogate.options.loss_scale if self.surrogate is not None else 0.0
        return {
            "epoch": epoch,
            "train_accuracy": means.pop("correct"),
            "rob_loss": None,  # not measured where the surrogate does not act, as in warm-up
            "intra_mse": None,
            **means,
            "accuracy": None,
            **(learned_scalars(self.surrogate) if self.surrogate is not None and self.step.active else {}),
            "lr": lr,
            "effective_weight": weight * factor * scale if train.compose != "direct" else weight * scale,
            "seconds": time.monotonic() - began,
        }

    def _converged(self) -> bool:
        if self.config.train.stop != "converged" or not distributed.agreed(self.keeper.converged()):
            return False
        log.info("converged after epoch %d", self.epoch)
        return True

    def _batches(self, epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """This process's share of every batch of an epoch."""
        train, seed = self.config.train, self.config.seed
        size = batch_size(train)
        order = epoch_order(self.parts.train.labels, size, seed, epoch, train.balanced_batches)
        random = generator(seed, "augment", epoch, device=self.device)
        local = slice(self.rank * size // self.world, (self.rank + 1) * size // self.world)
        for images, labels in training_batches(self.parts.train, order, size, self.augmentation, random):
            yield images[local], labels[local]

    def _pretrain(self) -> None:
        """Adversaries of defences may train alone before epoch 1, on the defender's own training pictures."""
        rounds = max((defence.pretrain_epochs for defence in defences_of(self.model)), default=0)
        self.model.train()
        for left in range(rounds, 0, -1):  # these epochs are numbered 1 - rounds, ..., 0
            self.step.noise.manual_seed(derive_seed(self.config.seed, "noise", 1 - left, self.rank))
            for images, labels in self._batches(1 - left):
                self.step.pretrain(images, labels, left)

    def _set_rates(self, lr: float, weight: float, factor: float) -> None:
        set_rate(self.optimiser, lr)
        self.step.kappa.fill_(weight * factor)
        self.step.weight.fill_(weight)
        self.step.epoch = self.epoch
        self.step.stage = "joint" if self.surrogate is None else stage(self.config.train, self.epoch)
        self.step.active = self.surrogate is not None and is_active(self.config.train, self.epoch)

    def _seed_streams(self) -> None:
        """Each epoch starts its own streams: dropout, transmission noise, and the surrogate's private one."""
        seed, epoch = self.config.seed, self.epoch
        torch.manual_seed(derive_seed(seed, "dropout", epoch, self.rank))
        self.step.noise.manual_seed(derive_seed(seed, "noise", epoch, self.rank))
        own = getattr(self.surrogate, "noise_generator", None)
        if isinstance(own, torch.Generator):
            own.manual_seed(derive_seed(seed, "surrogate", epoch))

    def _tell_defences(self) -> None:
        """An epoch begins. Learned noise may have changed since the last one, and with it the surrogate's sigma."""
        changed = [defence.on_epoch(self.epoch, self.config.train.epochs) for defence in defences_of(self.model)]
        sigma = total_sigma(self.model)
        self.guards.sigma = sigma
        if self.surrogate is not None and sigma != self.surrogate.sigma:
            self.surrogate.set_sigma(sigma)
            changed.append(True)
        # a recorded step would keep the number of the epoch it was recorded in, which the census of slots reads
        changed.append(getattr(self.surrogate, "census", None) is not None)
        if any(changed) and isinstance(self.run_step, CapturedStep):
            self.run_step.forget()

    def _repair(self, row: dict[str, Any]) -> None:
        """A skipped step moves no weight, but its NaN may have reached the statistics of batch normalisation."""
        if row["skipped"]:
            noise = generator(self.config.seed, "repair", self.epoch, self.rank, device=self.device)
            layers = repair_statistics(self.model, self._batches(self.epoch), self.precision, noise)
            self.guards.count("normalisation layers whose statistics were measured again after a skipped step", layers)

    def _evaluate(self) -> dict[str, Any]:
        return self.evaluator.epoch(self.epoch)

    def _refresh(self) -> dict[str, Any]:
        """The surrogate's epoch statistics; the time they took, where there are any."""
        parts, config = self.parts, self.config
        began = time.monotonic()
        done = refresh(self.surrogate, self.model, parts.train, config, self.epoch, self.precision, self.augmentation)
        return {"refresh_seconds": time.monotonic() - began} if done else {}

    def _store_gates(self) -> None:
        """On request: maps of the first batch of training pictures, always the same ones (SPEC 6.8)."""
        wanted = self.config.train.store_gates and self.step.active and distributed.is_main()
        if wanted and self.surrogate is not None:
            first = self.parts.train.subset(torch.arange(batch_size(self.config.train)))
            z, y = next(clean_features(self.model, first, self.precision))
            store_gates(self.folder.path, self.epoch, self.surrogate, z, y)

    def test_accuracy(self, new_noise: bool = False) -> float:
        """Accuracy of the weights as they are now, on the test part; with noise that no epoch was measured with."""
        return self.evaluator.accuracy(self.parts.test, self.epoch + new_noise)
