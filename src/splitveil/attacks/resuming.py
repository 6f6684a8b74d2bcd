"""Train once: a decoder that an interrupted attack had already trained comes back from the attack's memory."""

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
    """`fit`, or what it gave when this `step` was finished before; the random stream goes on as it would have."""
    known = memory.recall(step)
    if known is None:
        fitted = fit(decoder, queries, options, generator, progress, **more)
        memory.remember(step, _packed(fitted, generator))
        return fitted
    decoder.load_state_dict(below(LAST, known))
    generator.set_state(known["generator"].cpu())
    curve = [(float(epoch), float(error)) for epoch, error in known["curve"]]
    return Fit(decoder, curve, int(known["best_epoch"]), below(BEST, known))


def _packed(fitted: Fit, generator: torch.Generator) -> dict[str, Tensor]:
    return {
        **{LAST + name: value for name, value in fitted.decoder.state_dict().items()},
        **{BEST + name: value for name, value in fitted.best_state.items()},
        "curve": torch.tensor(fitted.curve, dtype=torch.float64),
        "best_epoch": torch.tensor(fitted.best_epoch),
        "generator": generator.get_state(),
    }
