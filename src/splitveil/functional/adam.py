"""The adversaries' optimiser: Adam in a form that a recorded CUDA graph can replay, its schedule and its rewinding.

A recorded step reads the rate, the step count and the moments at fixed addresses, so all of them change in place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor


def adam(
    parameters: Iterable[Tensor], lr: float, weight_decay: float = 0.0, betas: tuple[float, float] = (0.9, 0.999)
) -> torch.optim.Adam:
    """Adam; on CUDA with rate and step count on the device, and in one kernel."""
    kept = list(parameters)
    device = kept[0].device if kept else torch.device("cpu")
    on_cuda = device.type == "cuda"
    return torch.optim.Adam(
        kept,
        lr=torch.tensor(lr, device=device) if on_cuda else lr,
        betas=betas,
        weight_decay=weight_decay,
        capturable=on_cuda,  # keeps the step count on the device
        fused=True if on_cuda else None,  # one kernel instead of one per operation
    )


def cosine(highest: float, lowest: float, done: int, total: int) -> float:
    """SPEC 8.1: half a cosine from `highest` at the beginning towards `lowest` after the last of `total`."""
    return lowest + (highest - lowest) * (1 + math.cos(math.pi * done / total)) / 2


def set_rate(optimiser: torch.optim.Optimizer, value: float) -> None:
    """Give every parameter group this learning rate."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(value)
        else:
            group["lr"] = value


def forget(optimiser: torch.optim.Optimizer) -> None:
    """Undo what steps left in the optimiser's state."""
    for state in optimiser.state.values():
        for value in state.values():
            value.zero_()
