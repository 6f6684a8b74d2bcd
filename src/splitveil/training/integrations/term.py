"""What every integration does: listen at the cut while a foreign model runs, and turn what it heard into a loss.

extra = weight · loss(z, y) + fit_loss(z, y),   z = output of the layer `features`
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from splitveil.core.errors import ConfigError, InputError, UsageError, nearest
from splitveil.models.split import evaluating
from splitveil.surrogates.base import Surrogate, SurrogateOutput
from splitveil.training.distributed import copy_from_main, gather_batch

NAME = "splitveil_surrogate"  # of the submodule that the host's model gets


class EntropyTerm:
    """A surrogate, the layer it listens to, its weight, and the epoch from which it acts.

    `weight` is the whole factor on the loss: λ·w_lr·s in SPEC's letters (6.1, 6.4). With `warmup_epochs` = w it acts
    from epoch w + 1 on; before that nothing is computed and the surrogate's own parameters get no gradient (SPEC 6.3).
    """

    def __init__(self, surrogate: Surrogate, features: str, weight: float, warmup_epochs: int = 1) -> None:
        if not math.isfinite(weight) or weight < 0:
            raise ConfigError(f"The weight of a surrogate must be a finite number >= 0, not {weight}.")
        if warmup_epochs < 0:
            raise ConfigError(f"warmup_epochs must be >= 0, not {warmup_epochs}.")
        if warmup_epochs == 0 and surrogate.refresh_needed:
            raise ConfigError("This surrogate learns its statistics after the first epoch.", "Use warmup_epochs >= 1.")
        self.surrogate, self.features = surrogate, features
        self.weight, self.warmup_epochs = weight, warmup_epochs

    def attach(self, model: nn.Module) -> None:
        """Make the surrogate a submodule of `model`: it moves, is saved, restored and optimised with it.

        DistributedDataParallel is told to leave it alone: it would expect a gradient for every parameter in every step,
        and the processes agree without it, since all compute the same loss from the same global batch.
        """
        self._layer(model)
        model.add_module(NAME, self.surrogate)
        names = [f"{NAME}.{name}" for name, _ in [*self.surrogate.named_parameters(), *self.surrogate.named_buffers()]]
        others = getattr(model, "_ddp_params_and_buffers_to_ignore", [])
        model._ddp_params_and_buffers_to_ignore = [*others, *names]  # type: ignore[assignment]

    def begin(self, optimisers: Iterable[Any], hint: str) -> None:
        """Before the first step: own parameters must be trained too (SPEC 6.6), and processes must agree on them."""
        optimised = {id(p) for optimiser in optimisers for group in optimiser.param_groups for p in group["params"]}
        if any(p.requires_grad and id(p) not in optimised for p in self.surrogate.parameters()):
            raise UsageError("The optimiser leaves out the surrogate's own parameters.", hint)
        copy_from_main(self.surrogate)

    def active(self, epoch: int) -> bool:
        """Whether the surrogate acts in this epoch (counted from 1)."""
        return self.weight > 0 and epoch > self.warmup_epochs

    @contextmanager
    def listen(self, model: nn.Module) -> Iterator[list[Tensor]]:
        """Collect what the layer puts out while the block runs."""
        heard: list[Tensor] = []

        def hear(module: nn.Module, args: Any, output: Any) -> None:
            first = output[0] if isinstance(output, tuple) else output
            if not isinstance(first, Tensor):
                raise InputError(f"The layer '{self.features}' gives a {type(first).__name__}, not a tensor.")
            heard.append(first)

        hook = self._layer(model).register_forward_hook(hear)
        try:
            yield heard
        finally:
            hook.remove()

    def output(self, heard: list[Tensor], y: Tensor, epoch: int) -> SurrogateOutput:
        """The surrogate on what was heard; over many processes, on the global batch."""
        return self.surrogate(*gather_batch(self._only(heard), y), epoch=epoch)

    def extra(self, out: SurrogateOutput) -> Tensor:
        """weight · loss + fit_loss."""
        return self.weight * out.loss + out.fit_loss

    @torch.no_grad()
    def refresh(
        self, model: nn.Module, batches: Iterable[Any], forward: Callable[[Any], Any], labels: Callable[[Any], Tensor]
    ) -> None:
        """Epoch statistics from clean features, model in eval mode (SPEC 1.2); nothing where a method has none."""
        if not self.surrogate.refresh_needed or self.weight == 0:
            return

        def features() -> Iterator[tuple[Tensor, Tensor]]:
            for batch in batches:
                with self.listen(model) as heard:
                    forward(batch)
                yield gather_batch(self._only(heard).float(), labels(batch))

        with evaluating(model):
            self.surrogate.refresh(features())

    def _only(self, heard: list[Tensor]) -> Tensor:
        if len(heard) != 1:
            raise InputError(
                f"The layer '{self.features}' ran {len(heard)} times in one step.", "Name a layer that runs once."
            )
        return heard[0]

    def _layer(self, model: nn.Module) -> nn.Module:
        try:
            return model.get_submodule(self.features)
        except AttributeError:
            known = [name for name, _ in model.named_modules() if name]
            hint = nearest(self.features, known)
            raise InputError(f"{type(model).__name__} has no layer called '{self.features}'.", hint) from None
