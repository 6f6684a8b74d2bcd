"""Train an adversary's decoder on pairs of transmissions and pictures, without a look at the host inside an epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from splitveil.attacks.capture import accelerated, fast_convolutions, rewinding
from splitveil.attacks.queries import CHUNK, Queries
from splitveil.core.errors import InputError
from splitveil.core.options import Options
from splitveil.functional.adam import adam, cosine, set_rate

Loss = Callable[[Tensor, Tensor], Tensor]


class FitOptions(Options):
    """How a decoder is trained; the defaults are SPEC 8.1's."""

    epochs: int = Field(50, ge=1, description="passes over the adversary's pictures")
    batch_size: int = Field(256, ge=2, description="pictures per step")
    lr: float = Field(1e-3, gt=0, description="rate of Adam in the first epoch")
    lr_min: float = Field(1e-5, ge=0, description="rate towards which the cosine falls after the last epoch")
    weight_decay: float = Field(1e-4, ge=0, description="L2 penalty that Adam adds to the gradient")
    holdout: float = Field(0.1, ge=0, lt=1, description="share of the adversary's pictures kept to choose an epoch")
    precision: Literal["bfloat16", "float32"] = Field(
        "bfloat16", description="arithmetic of the training steps on a GPU; CPUs and final answers use float32"
    )


@dataclass(frozen=True)
class Fit:
    """A trained decoder: as it ended, and as it was in the epoch with the lowest held-out error."""

    decoder: nn.Module
    curve: list[tuple[float, float]]  # (epoch, held-out MSE; training MSE where nothing is held out)
    best_epoch: int
    best_state: dict[str, Tensor]

    @property
    def error(self) -> float:
        """The lowest held-out error."""
        return self.curve[self.best_epoch - 1][1]

    def best(self) -> nn.Module:
        """The decoder itself, set to its best epoch."""
        self.decoder.load_state_dict(self.best_state)
        return self.decoder


def mean_squared(reconstruction: Tensor, target: Tensor) -> Tensor:
    return (reconstruction - target).square().mean()


def fit(
    decoder: nn.Module,
    queries: Queries,
    options: FitOptions,
    generator: torch.Generator,
    progress: Callable[[int, int], None],
    *,
    repeats: int = 1,
    loss: Loss = mean_squared,
    watch: Queries | None = None,
) -> Fit:
    """Adam with a cosine schedule per epoch; every transmission is fresh.

    A tenth (`holdout`) of the pictures, or all of `watch` where given, is never trained on and chooses the best epoch.
    The last incomplete batch of an epoch is left out: the order is new in every epoch, so each picture has its turn.
    """
    if len(queries) < 2:
        raise InputError(f"An attacker with {len(queries)} auxiliary pictures cannot train.", "Give it at least two.")
    device = generator.device
    order = torch.randperm(len(queries), generator=generator, device=device)
    held = int(len(queries) * options.holdout) if len(queries) >= 10 else 0
    validation, training = order[:held], order[held:]
    if watch is not None:
        validation = torch.arange(len(watch), device=device)
    batch_size = min(options.batch_size, len(training))
    optimiser = adam(decoder.parameters(), options.lr, options.weight_decay)
    running = torch.zeros((), device=device)

    def step(index: Tensor) -> None:
        sent, target = queries.batch(index, generator, repeats)
        optimiser.zero_grad(set_to_none=True)
        with _half(device, options):
            reconstruction = decoder(_laid_out(sent))
        value = loss(reconstruction.float(), target)
        value.backward()
        optimiser.step()
        running.add_(value.detach())

    decoder.train()
    steps = options.epochs * (len(training) // batch_size)
    with fast_convolutions(device):
        rewind = rewinding([decoder], optimiser)
        advance = accelerated(decoder, step, training[:batch_size], generator, rewind, steps=steps)
    curve: list[tuple[float, float]] = []
    best_epoch, best_state = 0, {}
    for epoch in range(1, options.epochs + 1):
        set_rate(optimiser, cosine(options.lr, options.lr_min, epoch - 1, options.epochs))
        decoder.train()
        running.zero_()
        shuffled = training[torch.randperm(len(training), generator=generator, device=device)]
        batches = [piece for piece in shuffled.split(batch_size) if len(piece) == batch_size]
        with fast_convolutions(device):
            for index in batches:
                advance(index)
        error = running / len(batches)
        if len(validation):
            error = held_out(decoder, watch or queries, validation, generator, repeats)
        curve.append((float(epoch), float(error)))
        if best_epoch == 0 or curve[-1][1] < curve[best_epoch - 1][1]:
            best_epoch = epoch
            best_state = {name: value.detach().clone() for name, value in decoder.state_dict().items()}
        progress(epoch, options.epochs)
    decoder.zero_grad(set_to_none=True)  # gradients lie in the memory of the recorded step, which goes with it
    return Fit(decoder, curve, best_epoch, best_state)


@torch.no_grad()
def held_out(decoder: nn.Module, queries: Queries, index: Tensor, generator: torch.Generator, repeats: int) -> Tensor:
    """Mean squared error on the pictures at `index`, decoder in eval mode, in full precision like the answers."""
    decoder.eval()
    total = torch.zeros((), device=generator.device)
    for piece in index.split(CHUNK):
        sent, target = queries.batch(piece, generator, repeats)
        answer = decoder(_laid_out(sent))
        total += (answer - target).square().mean(dim=(1, 2, 3)).sum()
    return total / len(index)


@torch.no_grad()
def decode(decoder: nn.Module, sent: Tensor) -> Tensor:
    """Pictures [N, ch, h, w] for what was sent [N, ...]; eval mode (SPEC 8.1), full precision."""
    decoder.eval()
    return torch.cat([decoder(_laid_out(piece)).float() for piece in sent.split(CHUNK)]).clamp(0, 1).contiguous()


def _half(device: torch.device, options: FitOptions) -> torch.autocast:
    """bfloat16 where it is fast; CPUs stay in float32. Final answers (`decode`) never use it."""
    return torch.autocast(
        device.type, torch.bfloat16, enabled=device.type == "cuda" and options.precision == "bfloat16"
    )


def _laid_out(sent: Tensor) -> Tensor:
    """Channels last where there are channels: convolutions run faster so."""
    return sent.contiguous(memory_format=torch.channels_last) if sent.ndim == 4 else sent
