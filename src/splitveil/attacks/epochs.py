"""Train an adversary's networks by shuffled passes over its pictures; on CUDA a step is recorded once and replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from splitveil.attacks.capture import accelerated, fast_convolutions, rewinding
from splitveil.core.errors import InputError
from splitveil.functional.adam import adam, cosine, set_rate


def unheard(epoch: int) -> None:
    """Progress that nobody watches."""


def run_epochs(
    networks: Sequence[nn.Module],
    loss: Callable[[Tensor], Tensor],
    count: int,
    generator: torch.Generator,
    *,
    epochs: int,
    batch_size: int,
    lr: float,
    weight_decay: float = 0.0,
    smallest: int | None = None,
    progress: Callable[[int], None] = unheard,
) -> list[tuple[float, float]]:
    """Adam with a cosine schedule per epoch on `loss(index)`; returns (epoch, mean loss of its full batches).

    `index` [B] are places among `count` pictures. `loss` must not look at the host and draws from `generator` alone.
    A last incomplete batch is used where it has at least `smallest` pictures; without `smallest` it is left out.
    """
    if count < 2:
        raise InputError(f"A network cannot be trained on {count} pictures.", "Give the attacker at least two.")
    device = generator.device
    size = min(batch_size, count)
    optimiser = adam([parameter for network in networks for parameter in network.parameters()], lr, weight_decay)
    running = torch.zeros((), device=device)

    def step(index: Tensor) -> None:
        optimiser.zero_grad(set_to_none=True)
        value = loss(index)
        value.backward()
        optimiser.step()
        running.add_(value.detach())

    curve = []
    with fast_convolutions(device):
        full, rewind = count // size, rewinding(networks, optimiser)
        advance = accelerated(None, step, torch.arange(size, device=device), generator, rewind, steps=epochs * full)
        for epoch in range(1, epochs + 1):
            set_rate(optimiser, cosine(lr, 0.0, epoch - 1, epochs))
            batches = torch.randperm(count, generator=generator, device=device).split(size)
            running.zero_()
            for index in batches[:full]:
                advance(index)
            curve.append((float(epoch), float(running / full)))
            for index in batches[full:]:
                if smallest is not None and len(index) >= smallest:
                    step(index)
            progress(epoch)
    return curve
