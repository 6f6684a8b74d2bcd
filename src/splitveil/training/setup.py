"""What a run needs before its first step: a recipe that can train, an optimiser, and a step that is fast here."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from splitveil.core.config import Config
from splitveil.core.errors import ConfigError
from splitveil.core.sections import Train
from splitveil.data.dataset import DataParts, DatasetInfo
from splitveil.data.protocol import LEAST
from splitveil.models.split import SplitModel, evaluating
from splitveil.surrogates.base import Surrogate
from splitveil.training import distributed
from splitveil.training.batches import batch_size, check_balanced, num_steps
from splitveil.training.build import as_deployed, build_model, build_surrogate, defences_of
from splitveil.training.capture import CapturedStep
from splitveil.training.compose import POLICIES
from splitveil.training.fine_tune import check_starting_run
from splitveil.training.losses import StepModule
from splitveil.training.precision import number_format
from splitveil.training.schedule import privacy_weight
from splitveil.training.step import TrainStep

log = logging.getLogger("splitveil.training")

COMPILE_STEPS = 40_000  # compiling takes half a minute and saves about half a millisecond per step on an H200


def check_network(config: Config, info: DatasetInfo) -> None:
    """Refuse a recipe whose network cannot be built for such pictures, or cannot send one; build it to see."""
    model = build_model(config, info)
    deployed = as_deployed(model, build_surrogate(config, model))
    with evaluating(deployed), torch.no_grad():  # `cost` would do the same, and import torch's compiler to count
        deployed(torch.zeros(1, *info.image_shape), torch.Generator())
    check_starting_run(config, model)


def check_recipe(config: Config, parts: DataParts, world: int) -> None:
    """Refuse a recipe that cannot train on these pictures with so many processes, and say why."""
    train, size = config.train, batch_size(config.train)
    if not len(parts.val):
        raise ConfigError(
            "There are so few training pictures that none is left for validation.",
            f"Give at least {LEAST} of them; data.limit may leave fewer.",
        )
    if train.balanced_batches is not None:
        check_balanced(parts.train.labels, train.balanced_batches)
    num_steps(len(parts.train), size)
    if train.schedule == "cosine" and train.lr_min > train.lr:
        raise ConfigError(
            f"train.lr_min = {train.lr_min} is above train.lr = {train.lr}: the cosine would rise.", "Lower lr_min."
        )
    if size % world:
        raise ConfigError(f"A batch of {size} pictures is not divisible by {world} processes.")
    if train.stop == "converged" and parts.protocol == "published":
        raise ConfigError(
            "train.stop = 'converged' would stop by test accuracy under the published protocol.",
            "Use data.protocol = 'disjoint', which has validation pictures.",
        )
    if world > 1 and POLICIES[str(train.compose)].passes > 1:
        raise ConfigError(f"train.compose = '{train.compose}' needs a single process.", "Use 'single': it is equal.")
    if train.select == "val_best" and parts.protocol == "published":
        raise ConfigError(
            "train.select = 'val_best' needs validation pictures that are neither trained on nor the test part.",
            "Use data.protocol = 'disjoint', or select = 'test_best' as the released code does.",
        )


def _active_epochs(train: Train) -> list[int]:
    return [epoch for epoch in range(1, train.epochs + 1) if privacy_weight(train, epoch) > 0]


def tell_active(config: Config, model: SplitModel) -> bool:
    """Warn where the surrogate acts in no epoch (SPEC 6.2); log in which it does where a defence freezes the edge.

    False where there is a surrogate that never acts.
    """
    train = config.train
    if config.surrogate is None or train.privacy_weight == 0:
        return True
    active = _active_epochs(train)
    if not active:
        without = _active_epochs(train.model_copy(update={"warmup_epochs": 0}))
        stages = f" and the first {train.base_epochs + train.adapt_epochs} belong to earlier stages"
        log.warning(
            "train.warmup_epochs = %d leaves none of %d epochs to the surrogate, which never acts in the first%s: this "
            "run trains without it; %strain longer",
            train.warmup_epochs,
            train.epochs,
            stages if train.progressive else "",
            "shorten the warm-up or " if without else "",
        )
        return False
    frozen = [first for d in defences_of(model) if (first := d.frozen_from(train.epochs)) is not None]
    if not frozen or min(frozen) > train.epochs:
        return True
    acts = [epoch for epoch in active if epoch < min(frozen)]
    if acts:
        log.info(
            "the surrogate acts in epochs %d to %d of %d: then a defence freezes the edge",
            acts[0],
            acts[-1],
            train.epochs,
        )
    else:
        log.warning(
            "the surrogate acts in no epoch: a defence freezes the edge from epoch %d of %d on; let it start later "
            "(defence.shredder.start), set its freeze=false, or shorten the warm-up",
            min(frozen),
            train.epochs,
        )
    return bool(acts)


def make_optimiser(
    model: SplitModel, surrogate: Surrogate | None, train: Train, device: torch.device
) -> torch.optim.SGD:
    """SGD with one group per owner, all present before the first rate is set (SPEC 6.6)."""
    adversaries = {id(p) for adversary in model.adversaries().values() for p in adversary.parameters()}
    own = [p for p in model.defences.parameters() if id(p) not in adversaries]
    groups: list[dict[str, Any]] = [{"name": "edge", "params": list(model.edge.parameters())}]
    if own:
        # what a defence learns is a law of noise or a filter with an objective of its own: decay would wear noise off,
        # and pull a scale towards whatever the parameter 0 happens to mean
        groups.append({"name": "defences", "params": own, "weight_decay": 0.0})
    groups.append({"name": "cloud", "params": list(model.cloud.parameters())})
    if surrogate is not None and any(True for _ in surrogate.parameters()):
        groups.append({"name": "surrogate", "params": list(surrogate.parameters())})
    cuda = device.type == "cuda"
    for group in groups:  # on a GPU the rate is a tensor of its own, which a captured step reads
        group["lr"] = torch.tensor(train.lr, device=device) if cuda else train.lr
    optimiser = torch.optim.SGD(
        groups, lr=train.lr, momentum=train.momentum, weight_decay=train.weight_decay, fused=True if cuda else None
    )
    if train.momentum:
        # Zero momentum gives the same first step as none. The fused kernel would leave a buffer uninitialised when it
        # skips the first step, and refuses a group in which some parameters had their first gradient and others not.
        for parameter in [parameter for group in optimiser.param_groups for parameter in group["params"]]:
            optimiser.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimiser


def make_step(
    model: SplitModel,
    surrogate: Surrogate | None,
    optimiser: torch.optim.SGD,
    config: Config,
    device: torch.device,
    steps: int,
) -> tuple[TrainStep, Callable[..., None]]:
    """The step, and what to call instead of it: the step itself, or its captured form. `steps`: of the whole run."""
    train = config.train
    module = StepModule(model, surrogate, POLICIES[str(train.compose)], number_format(train, device))
    if distributed.world()[1] > 1:
        step = TrainStep(_over_processes(module), module, optimiser, device, privacy_every=train.privacy_every or 1)
        return step, step
    module.accelerate(device, _compiles(model, surrogate, train, device, steps))
    step = TrainStep(module, module, optimiser, device, privacy_every=train.privacy_every or 1)
    if device.type != "cuda" or train.capture == "off":
        return step, step
    torch.backends.cudnn.benchmark = True  # shapes are fixed: the fastest kernel is worth looking for once
    return step, CapturedStep(step)


def _over_processes(module: StepModule) -> nn.Module:
    distributed.with_global_batch_norm(module.model)
    own = module.surrogate is not None and any(True for _ in module.surrogate.parameters())
    # statistics and banks come from the global batch, so buffers agree already: do not send them around
    names = [name for name, _ in module.named_buffers()]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, names)
    return DistributedDataParallel(module, find_unused_parameters=own)


def _compiles(model: SplitModel, surrogate: Surrogate | None, train: Train, device: torch.device, steps: int) -> bool:
    """`auto` compiles on a GPU when the run is long enough to win back the time it takes."""
    if surrogate is not None and any(defence.learns_noise for defence in defences_of(model)):
        return False  # its sigma changes every epoch, and every change would compile anew
    return train.capture == "compile" or (train.capture == "auto" and device.type == "cuda" and steps >= COMPILE_STEPS)
