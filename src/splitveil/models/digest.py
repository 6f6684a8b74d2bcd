"""A checksum that says whether two models have the same weights."""

from __future__ import annotations

import hashlib

import torch
from torch import nn

from splitveil.models.split import SplitModel


def weights_digest(module: nn.Module) -> str:
    """Checksum of all weights and buffers, to the bit; of a split model without its defences' adversaries."""
    digest = hashlib.sha256()
    state = module.deployed_state() if isinstance(module, SplitModel) else module.state_dict()
    for name, value in state.items():
        if isinstance(value, torch.Tensor):
            digest.update(f"{name}{value.dtype}{tuple(value.shape)}".encode())
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
