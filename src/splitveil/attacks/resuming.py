"""Train once: a network that an interrupted attack had already trained comes back from the attack's memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from splitveil.attacks.fitting import Fit, FitOptions, fit
from splitveil.attacks.memory import Memory
from splitveil.attacks.queries import Queries
from splitveil.core.dotted import below

LAST, BEST = "last ", "best "


def train_once(
    memory: Memory, step: str, network: nn.Module, generator: torch.Generator, train: Callable[[], dict[str, Tensor]]
) -> dict[str, Tensor]:
    """What `train()` gives, which trains `network` in place; or that, and the network, from when this `step` was
    finished before. The random stream goes on as it would have."""
    known = memory.recall(step)
    if known is not None:
        network.load_state_dict(below(LAST, known))
        generator.set_state(known["generator"].cpu())
        return known
    found = train()
    made = {LAST + name: value for name, value in network.state_dict().items()}
    memory.remember(step, {**made, **found, "generator": generator.get_state()})
    return found


def fit_once(
    memory: Memory,
    step: str,
    decoder: nn.Module,
    queries: Queries,
    options: FitOptions,
    generator: torch.Generator,
    progress: Callable[[int, int], None],
    **more: Any,
) -> Fit:
    """`fit`, or what it gave when this `step` was finished before."""

    def train() -> dict[str, Tensor]:
        fitted = fit(decoder, queries, options, generator, progress, **more)
        best = {BEST + name: value for name, value in fitted.best_state.items()}
        return {
            **best,
            "curve": torch.tensor(fitted.curve, dtype=torch.float64),
            "best_epoch": torch.tensor(fitted.best_epoch),
        }

    found = train_once(memory, step, decoder, generator, train)
    curve = [(epoch, error) for epoch, error in found["curve"].tolist()]
    return Fit(decoder, curve, int(found["best_epoch"]), below(BEST, found))
