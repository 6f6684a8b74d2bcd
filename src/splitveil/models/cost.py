"""What a split costs: parameters and multiply-accumulates of both halves, bytes per transmission.

What defences compute when a feature is sent runs on the device and counts there; their adversaries stay at home.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from splitveil.core.errors import InputError
from splitveil.models.split import SplitModel, device_of, evaluating

BYTES_PER_VALUE = 4  # float32, as audits attack it


@dataclass(frozen=True)
class Cost:
    """Counts for one picture. MACs are multiply-accumulates of convolutions and matrix products."""

    feature_shape: tuple[int, ...]
    edge_params: int
    cloud_params: int
    edge_macs: int
    cloud_macs: int
    bytes_per_image: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def parameters(module: nn.Module) -> int:
    """Number of learnable values."""
    return sum(p.numel() for p in module.parameters())


def cost(model: SplitModel) -> Cost:
    """Count a split model; leaves modes and statistics untouched."""
    if model.image_shape is None:
        raise InputError("The cost needs the image shape.", "Pass image_shape= to SplitModel.")
    device = device_of(model)
    x = torch.zeros(1, *model.image_shape, device=device)
    draws = torch.Generator(device)  # of its own: counting must not change what is drawn elsewhere
    with evaluating(model):
        z, edge_macs = _macs(lambda pictures: model.send(pictures, draws), x)
        _, cloud_macs = _macs(model.cloud, z)
    own = parameters(model.defences) - sum(parameters(adversary) for adversary in model.adversaries().values())
    return Cost(
        feature_shape=tuple(z.shape[1:]),
        edge_params=parameters(model.edge) + own,
        cloud_params=parameters(model.cloud),
        edge_macs=edge_macs,
        cloud_macs=cloud_macs,
        bytes_per_image=z[0].numel() * BYTES_PER_VALUE,
    )


@torch.no_grad()
def _macs(module: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, int]:
    counter = FlopCounterMode(display=False)
    with counter:
        y = module(x)
    return y, counter.get_total_flops() // 2  # the counter gives two operations per multiply-accumulate
