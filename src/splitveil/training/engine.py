"""The training loop, to be read top to bottom.

    for each epoch:  set rates -> for each batch: step -> evaluate -> refresh epoch statistics -> guards -> log, save

Every random draw comes from a stream named by purpose and epoch, so a run that stops after any epoch continues exactly
as if it had not stopped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from splitveil.core.config import Config
from splitveil.core.errors import ConfigError, TrainingError
from splitveil.core.run_folder import RunFolder
from splitveil.core.seeding import derive_seed, generator
from splitveil.data.dataset import DataParts
from splitveil.models.split import SplitModel
from splitveil.surrogates.base import Surrogate
from splitveil.training import distributed
from splitveil.training.batches import epoch_order, num_steps, training_batches
from splitveil.training.build import build_model, build_surrogate, defences_of, total_sigma
from splitveil.training.capture import CapturedStep
from splitveil.training.checkpoint import load_state, load_weights, save_state, save_weights
from splitveil.training.compose import POLICIES
from splitveil.training.evaluate import EVAL_BATCH, accuracy, clean_features
from splitveil.training.gate_maps import store_gates
from splitveil.training.gates import GateLog
from splitveil.training.guards import Guards
from splitveil.training.schedule import is_active, learning_rate, lr_factor, privacy_weight, stage
from splitveil.training.step import StepModule, TrainStep

log = logging.getLogger("splitveil.training")

SAVE_SECONDS = 20.0  # without train.checkpoint_every: at most this much work is lost to a crash
REFRESH_BATCH = 5_000  # pictures encoded at once for epoch statistics on a GPU
COMPILE_STEPS = 40_000  # compiling takes half a minute and saves about half a millisecond per step on an H200
RESET_EPOCHS = (40, 100, 200)  # the released code forgets its best test accuracy after these (SPEC 6.7)

EpochCallback = Callable[[dict[str, Any]], None]


class Engine:
    """One run: data, model, surrogate and optimiser of a configuration, and the loop over them."""

    def __init__(self, config: Config, parts: DataParts, folder: RunFolder, device: torch.device) -> None:
        self.config, self.folder, self.device = config, folder, device
        self.parts = parts.to(device)
        torch.manual_seed(derive_seed(config.seed, "weights"))
        self.model: SplitModel = build_model(config, parts.info)
        self.surrogate: Surrogate | None = build_surrogate(config, self.model)
        self.model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        if self.surrogate is not None:
            self.surrogate.to(device)
        self.precision = _precision(config.train.precision, device)
        for defence in defences_of(self.model):
            defence.start()
        self.rank, self.world = distributed.world()
        self._check()
        self.optimiser = _optimiser(self.model, self.surrogate, config, device)
        self.step = self._make_step()
        self.run_step = self._accelerate(self.step)
        self.guards = Guards(config.train, parts.info.num_classes, total_sigma(self.model))
        self.gates = GateLog()
        self.best = -1.0
        self.epoch = 0

    # ---------------------------------------------------------------- the loop

    def run(self, on_epoch: EpochCallback | None = None, resume: bool = False) -> None:
        """Train from the beginning, or from the last intact checkpoint."""
        if resume:
            self._resume()
        if self.epoch == 0:
            self._pretrain()
        saved = time.monotonic()
        while self.epoch < self.config.train.epochs:
            self.epoch += 1
            row = self._train_epoch()
            row |= self._evaluate()
            self._refresh()
            self._keep_best(row)
            self.guards.check(row)
            if distributed.is_main():
                self._store_gates()
                self.folder.append_metrics({key: value for key, value in row.items() if value is not None})
                every = self.config.train.checkpoint_every
                due = self.epoch % every == 0 if every else time.monotonic() - saved > SAVE_SECONDS
                if due or self.epoch == self.config.train.epochs:
                    self._save()
                    saved = time.monotonic()
            if on_epoch is not None:
                on_epoch(row)
            if self.config.train.stop == "converged" and distributed.agreed(self._converged()):
                log.info("converged after epoch %d", self.epoch)
                break
        self._finish()

    def _train_epoch(self) -> dict[str, Any]:
        train, epoch = self.config.train, self.epoch
        began = time.monotonic()
        lr = learning_rate(train, epoch)
        weight = privacy_weight(train, epoch)
        factor = lr_factor(train.wlr, lr)
        self._set_rates(lr, weight, factor)
        self._seed_streams()
        self._tell_defences()
        # stage 2 of `progressive` trains φ alone: not even the statistics of batch normalisation move
        self.model.train(self.step.stage != "adapt")
        if self.surrogate is not None:
            self.surrogate.train()
        self.step.reset()
        for images, labels in self._batches(epoch):
            self.run_step(images, labels)
            self.gates.look(self.step)
        means = self.step.read()
        self.gates.write(epoch)
        scale = self.surrogate.options.loss_scale if self.surrogate is not None else 0.0
        return {
            "epoch": epoch,
            "train_accuracy": means.pop("correct"),
            **means,
            "accuracy": None,
            "nonfinite_feature_steps": round(means.get("nonfinite_features", 0.0) * means.get("surrogate_steps", 0)),
            "lr": lr,
            "effective_weight": weight * factor * scale if train.compose != "direct" else weight * scale,
            "seconds": time.monotonic() - began,
        }

    def _batches(self, epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """This process's share of every batch of an epoch."""
        train, seed = self.config.train, self.config.seed
        order = epoch_order(self.parts.train.labels, train.batch_size, seed, epoch, train.balanced_batches)
        augmentation = self.parts.info.augmentation if self.config.data.augment else None
        random = generator(seed, "augment", epoch, device=self.device)
        size = _batch_size(train.batch_size, train.balanced_batches)
        local = slice(self.rank * size // self.world, (self.rank + 1) * size // self.world)
        for images, labels in training_batches(self.parts.train, order, size, augmentation, random):
            yield images[local], labels[local]

    def _pretrain(self) -> None:
        """Adversaries of defences may train alone before epoch 1, on the defender's own training pictures."""
        rounds = max((defence.pretrain_epochs for defence in defences_of(self.model)), default=0)
        self.model.train()
        for left in range(rounds, 0, -1):  # these epochs are numbered 1 - rounds, ..., 0
            self.step.noise.manual_seed(derive_seed(self.config.seed, "noise", 1 - left, self.rank))
            for images, labels in self._batches(1 - left):
                self.step.pretrain(images, labels, left)

    def _tell_defences(self) -> None:
        """An epoch begins. Learned noise may have changed since the last one, and with it the surrogate's sigma."""
        changed = [defence.on_epoch(self.epoch, self.config.train.epochs) for defence in defences_of(self.model)]
        sigma = total_sigma(self.model)
        self.guards.sigma = sigma
        if self.surrogate is not None and sigma != self.surrogate.sigma:
            self.surrogate.set_sigma(sigma)
            changed.append(True)
        if any(changed) and isinstance(self.run_step, CapturedStep):
            self.run_step.forget()

    def _evaluate(self) -> dict[str, Any]:
        """Accuracy on validation pictures; on test pictures only in the last eighth, which nothing is chosen by.

        Protocol `published` has no validation part of its own and follows the paper: test accuracy throughout.
        """
        train, began = self.config.train, time.monotonic()
        late = self.epoch > train.epochs - max(1, train.epochs // 8)
        if not (late or self.epoch % train.eval_every == 0):
            return {}
        published = self.parts.protocol == "published"
        row: dict[str, Any] = {}
        if published or late or train.select == "test_best":
            row["test_accuracy"] = float(self._accuracy(self.parts.test))
        row["accuracy"] = row["test_accuracy"] if published else float(self._accuracy(self.parts.val))
        if self.surrogate is not None:
            row["feature_spread"] = self._feature_spread()
        row["eval_seconds"] = time.monotonic() - began
        return row

    def _refresh(self) -> None:
        """Epoch statistics of the surrogate, from clean features of the training pictures (SPEC 1.2)."""
        surrogate, part = self.surrogate, self.parts.train
        if surrogate is None or not surrogate.refresh_needed or self.config.train.privacy_weight <= 0:
            return
        size = REFRESH_BATCH if self.device.type == "cuda" else EVAL_BATCH
        if surrogate.refresh_in_training_batches:
            size = _batch_size(self.config.train.batch_size, self.config.train.balanced_batches)
        samples = getattr(surrogate.options, "bank_samples", 0) or len(part)
        # shuffled: a sample of the classes as they are, and sequences mixed as in training
        order = torch.randperm(len(part), generator=generator(self.config.seed, "refresh", self.epoch))[:samples]
        surrogate.refresh(clean_features(self.model, part, self.precision, order=order, batch_size=size))

    def _store_gates(self) -> None:
        """On request: maps of the first batch of training pictures, always the same ones (SPEC 6.8)."""
        if self.config.train.store_gates and self.surrogate is not None and self.step.active:
            first = self.parts.train.subset(torch.arange(self.config.train.batch_size))
            z, y = next(clean_features(self.model, first, self.precision))
            store_gates(self.folder.path, self.epoch, self.surrogate, z, y)

    # ------------------------------------------------------------ setting up

    def _check(self) -> None:
        train = self.config.train
        num_steps(len(self.parts.train), train.batch_size)
        if train.privacy_weight > 0 and self.surrogate is not None and (train.warmup_epochs or 0) >= train.epochs:
            raise ConfigError(
                f"train.warmup_epochs = {train.warmup_epochs} leaves none of {train.epochs} epochs to the surrogate.",
                "Shorten the warm-up or train longer.",
            )
        size = _batch_size(train.batch_size, train.balanced_batches)
        if size % self.world:
            raise ConfigError(f"A batch of {size} pictures is not divisible by {self.world} processes.")
        if train.stop == "converged" and self.parts.protocol == "published":
            raise ConfigError(
                "train.stop = 'converged' would stop by test accuracy under the published protocol.",
                "Use data.protocol = 'disjoint', which has validation pictures.",
            )
        if self.world > 1 and POLICIES[str(train.compose)].passes > 1:
            raise ConfigError(
                f"train.compose = '{train.compose}' needs a single process.", "Use 'single': it is equal."
            )
        if train.select == "val_best" and not len(self.parts.val):
            raise ConfigError("train.select = 'val_best' needs validation pictures.", "Use data.protocol = 'disjoint'.")

    def _make_step(self) -> TrainStep:
        composition = POLICIES[str(self.config.train.compose)]
        module = StepModule(self.model, self.surrogate, composition, self.precision)
        wrapped: nn.Module = module
        if self.world > 1:
            distributed.with_global_batch_norm(self.model)
            own = self.surrogate is not None and any(True for _ in self.surrogate.parameters())
            # statistics and banks come from the global batch, so buffers agree already: do not send them around
            names = [name for name, _ in module.named_buffers()]
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, names)
            wrapped = DistributedDataParallel(module, find_unused_parameters=own)
        else:
            module.accelerate(self.device, self._compiles())
        every = self.config.train.privacy_every or 1
        return TrainStep(wrapped, module, self.optimiser, self.device, privacy_every=every)

    def _accelerate(self, step: TrainStep) -> Callable[..., None]:
        if self.device.type != "cuda" or self.config.train.capture == "off" or self.world > 1:
            return step
        torch.backends.cudnn.benchmark = True  # shapes are fixed: the fastest kernel is worth looking for once
        return CapturedStep(step)

    def _compiles(self) -> bool:
        """`auto` compiles on a GPU when the run is long enough to win back the time it takes."""
        train = self.config.train
        if self.surrogate is not None and any(defence.learns_noise for defence in defences_of(self.model)):
            return False  # its sigma changes every epoch, and every change would compile anew
        steps = train.epochs * num_steps(len(self.parts.train), train.batch_size)
        return train.capture == "compile" or (
            train.capture == "auto" and self.device.type == "cuda" and steps >= COMPILE_STEPS
        )

    def _set_rates(self, lr: float, weight: float, factor: float) -> None:
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(lr)  # a captured step reads the rate from the device
            else:
                group["lr"] = lr
        self.step.kappa.fill_(weight * factor)
        self.step.weight.fill_(weight)
        self.step.epoch = self.epoch
        self.step.stage = stage(self.config.train, self.epoch)
        self.step.active = self.surrogate is not None and is_active(self.config.train, self.epoch)

    def _seed_streams(self) -> None:
        """Each epoch starts its own streams: dropout, transmission noise, and the surrogate's private one."""
        seed, epoch = self.config.seed, self.epoch
        torch.manual_seed(derive_seed(seed, "dropout", epoch, self.rank))
        self.step.noise.manual_seed(derive_seed(seed, "noise", epoch, self.rank))
        own = getattr(self.surrogate, "noise_generator", None)
        if isinstance(own, torch.Generator):
            own.manual_seed(derive_seed(seed, "surrogate", epoch))

    # ------------------------------------------------- measuring and keeping

    def _accuracy(self, part: Any) -> torch.Tensor:
        random = generator(self.config.seed, "evaluate", self.epoch, device=self.device)
        classify = None
        if self.step.parts.own_classifier:
            assert self.surrogate is not None
            classify = lambda sent: self.surrogate.classify(sent).logits  # type: ignore[operator] # noqa: E731
        training = self.surrogate is not None and self.surrogate.training
        if self.surrogate is not None:
            self.surrogate.eval()  # its classifier path has dropout and slot noise of its own
        try:
            return accuracy(self.model, part, random, precision=self.precision, classify=classify)
        finally:
            if self.surrogate is not None:
                self.surrogate.train(training)

    def test_accuracy(self) -> float:
        """Accuracy of the weights as they are now, on the test part."""
        return float(self._accuracy(self.parts.test))

    @torch.no_grad()
    def _feature_spread(self) -> float:
        """Root mean variance of clean features over pictures: 0 when the encoder has become a constant."""
        part = self.parts.val if len(self.parts.val) else self.parts.test
        z = next(iter(clean_features(self.model, part, self.precision)))[0]
        return float(z.flatten(1).var(dim=0, unbiased=False).mean().sqrt())

    def _keep_best(self, row: dict[str, Any]) -> None:
        select = self.config.train.select
        if select == "test_best" and self.epoch - 1 in RESET_EPOCHS:
            self.best = -1.0
        key = {"val_best": "accuracy", "test_best": "test_accuracy"}.get(select)
        if key is not None and row.get(key) is not None and row[key] > self.best:
            self.best = row[key]
            if distributed.is_main():
                save_weights(self.folder.checkpoints / "best.safetensors", self._modules())

    def _converged(self) -> bool:
        """No gain in validation accuracy and relative loss change < 1e-3 over 10 epochs (SPEC 6.7)."""
        rows = [row for row in self.folder.metrics() if row.get("accuracy") is not None]
        if len(rows) <= 10:
            return False
        before, now = rows[:-10], rows[-10:]
        gained = max(r["accuracy"] for r in now) > max(r["accuracy"] for r in before)
        change = abs(now[-1]["task_loss"] - now[0]["task_loss"]) / max(abs(now[0]["task_loss"]), 1e-12)
        return not gained and change < 1e-3

    def _modules(self) -> dict[str, nn.Module | None]:
        return {"model": self.model, "surrogate": self.surrogate}

    def _adversaries(self) -> dict[str, torch.optim.Optimizer]:
        """Optimisers of the adversaries inside defences, by the defence's name."""
        return {name: d.optimiser for name, d in self.model.defences.items() if d.optimiser is not None}  # type: ignore[misc]

    def _save(self) -> None:
        facts = {
            "best": self.best,
            "guards": self.guards.counts,
            "first_rob": self.guards.first_rob,
            "collapsed": self.guards.collapsed,
            "gate_calls": self.gates.calls,
        }
        keep = self.config.train.keep_every
        save_state(
            self.folder.checkpoints, self.epoch, self._modules(), self.optimiser, facts, keep, self._adversaries()
        )

    def _resume(self) -> None:
        facts = load_state(self.folder.checkpoints, self._modules(), self.optimiser, self._adversaries())
        self.epoch = int(facts.get("epoch", 0))
        self.best = float(facts.get("best", -1.0))
        self.guards.counts = dict(facts.get("guards", {}))
        self.guards.first_rob = facts.get("first_rob")
        self.guards.collapsed = int(facts.get("collapsed", 0))
        self.gates.calls = int(facts.get("gate_calls", 0))
        if distributed.is_main():
            self.folder.truncate_metrics(self.epoch)
        distributed.barrier()
        log.info("resuming after epoch %d", self.epoch)

    def _finish(self) -> None:
        if self.config.train.select != "last" and (self.folder.checkpoints / "best.safetensors").exists():
            load_weights(self.folder.checkpoints / "best.safetensors", self._modules())
        if distributed.is_main():
            save_weights(self.folder.checkpoints / "model.safetensors", self._modules())
        distributed.barrier()


def _optimiser(model: SplitModel, surrogate: Surrogate | None, config: Config, device: torch.device) -> torch.optim.SGD:
    """SGD with one group per owner, all present before the first rate is set (SPEC 6.6)."""
    train = config.train
    adversaries = {id(p) for d in model.defences.values() if d.adversary is not None for p in d.adversary.parameters()}  # type: ignore[union-attr]
    own = [p for p in model.defences.parameters() if id(p) not in adversaries]
    groups = [
        {"name": "edge", "params": [*model.edge.parameters(), *own]},
        {"name": "cloud", "params": list(model.cloud.parameters())},
    ]
    if surrogate is not None and any(True for _ in surrogate.parameters()):
        groups.append({"name": "surrogate", "params": list(surrogate.parameters())})
    cuda = device.type == "cuda"
    for group in groups:  # on a GPU the rate is a tensor of its own, which a captured step reads
        group["lr"] = torch.tensor(train.lr, device=device) if cuda else train.lr  # type: ignore[assignment]
    return torch.optim.SGD(
        groups, lr=train.lr, momentum=train.momentum, weight_decay=train.weight_decay, fused=True if cuda else None
    )


def _precision(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return torch.bfloat16 if name == "bfloat16" else torch.float32


def _batch_size(batch_size: int, balanced: tuple[int, int] | None) -> int:
    return balanced[0] * balanced[1] if balanced is not None else batch_size


def out_of_memory(error: BaseException) -> TrainingError:
    """What to tell a user whose device is too small."""
    return TrainingError(
        f"Out of memory: {str(error).splitlines()[0]}",
        "Lower train.batch_size, surrogate.memory or surrogate.proj_dim, or choose a narrower defence.bottleneck.",
    )
