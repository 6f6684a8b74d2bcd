"""The contract of a defence.

A defence may act in these places, and overrides only what it needs. Every hook runs in the order in which the recipe
names the defences:

    install(model)            change the two halves, when the model is built (bottleneck, sparse coding)
    attach(model)             make parameters of its own, once all are installed: the feature shape is final
    start()                   the model is on its device, nothing is trained yet: make optimisers
    on_epoch(epoch, epochs)   an epoch begins: schedules, pruning, phases
    transmit(z, generator)    change what is sent; active in training, evaluation, audit, export and serving alike
    train_adversary(step)     update networks of its own (an adversary) before the main step, with its own optimiser
    loss(step)                add a term to the task loss in training

Its parameters are trained with the edge half, but without weight decay, which is in no defence's formula; those inside
`adversary` the defence trains itself. All of its state lives in parameters, buffers and `optimiser`, so that a run that
was stopped continues bit for bit. `loss` and `train_adversary` are recorded once and replayed on GPUs: what changes
between epochs must be a tensor that `on_epoch` changes in place, or `on_epoch` returns True.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from splitveil.core.errors import InputError
from splitveil.core.options import Options as AnyOptions
from splitveil.models.split import SplitModel

HOOKS = ("install", "attach", "start", "on_epoch", "transmit", "train_adversary", "loss")
Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]  # a function in, the same function compiled out


@dataclass(frozen=True)
class Step:
    """What a defence may look at during one training step."""

    x: Tensor  # pictures in [0, 1], augmented
    y: Tensor  # labels
    z: Tensor  # clean feature
    sent: Tensor  # what was transmitted
    logits: Tensor | None  # None while adversaries train
    epoch: int


class Defence(nn.Module):
    """Base class: does nothing anywhere."""

    Options: ClassVar[type[AnyOptions]] = AnyOptions
    counter_attacks: ClassVar[tuple[str, ...]] = ()  # attacks that a knowing adversary would use, by registry name
    learns_noise: ClassVar[bool] = False  # whether `noise_power` changes in training

    def __init__(self, options: AnyOptions) -> None:
        super().__init__()
        _check_hooks(type(self))
        self.options = options
        self.adversary: nn.Module | None = None
        self.optimiser: torch.optim.Optimizer | None = None  # of the adversary; part of every checkpoint
        self.pretrain_epochs = 0  # epochs in which only the adversary trains, before the first

    def extra_repr(self) -> str:
        """What `print(model)` shows of it: its options."""
        return ", ".join(f"{key}={value!r}" for key, value in self.options)

    def install(self, model: SplitModel) -> None:
        """Change the halves of a freshly built model."""

    def attach(self, model: SplitModel) -> None:
        """Make own parameters; every defence of the recipe is installed."""

    def start(self) -> None:
        """Make `optimiser`; the parameters are on their device."""

    def accelerate(self, compiled: Compiler) -> None:
        """The run is long enough to compile its step: compile what `train_adversary` runs outside it."""

    def on_epoch(self, epoch: int, epochs: int) -> bool:
        """Epoch `epoch` of `epochs` begins (from 1). True: the step does something else now, so record it anew."""
        return False

    def frozen_from(self, epochs: int) -> int | None:
        """The first of `epochs` epochs in which this defence keeps the edge fixed; None where it never does."""
        return None

    def transmit(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """What is sent in place of z."""
        return z

    def loss(self, step: Step) -> Tensor | None:
        """A term to add to the task loss, already weighted; None for none."""
        return None

    def train_adversary(self, step: Step) -> None:
        """Train the defence's own adversary on detached features of the defender's training pictures."""

    @property
    def idle(self) -> bool:
        """Whether these options make the defence do nothing, so that there is nothing to attack in it."""
        return False

    def noise_power(self) -> float:
        """Mean variance of the noise that `transmit` adds now; surrogates measure compactness against the total."""
        return 0.0


def _check_hooks(cls: type[Defence]) -> None:
    """A misspelt hook would leave the model undefended under the name of a defence; one with other arguments fails."""
    own = [name for name in HOOKS if getattr(cls, name) is not getattr(Defence, name)]
    if not own:
        raise InputError(
            f"The defence {cls.__name__} does nothing: it overrides none of {', '.join(HOOKS)}.",
            "Look at the spelling of its methods.",
        )
    for name in own:
        asked = list(inspect.signature(getattr(Defence, name)).parameters)
        try:
            inspect.signature(getattr(cls, name)).bind(*asked)
        except TypeError:
            raise InputError(
                f"The defence {cls.__name__} has a {name}{inspect.signature(getattr(cls, name))}, which is called as "
                f"{name}({', '.join(asked[1:])})."
            ) from None
