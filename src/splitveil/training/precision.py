"""Number formats: which one the networks compute in, and pictures and autocast to match."""

from __future__ import annotations

import torch
from torch import Tensor

from splitveil.core.config import Train
from splitveil.data.augment import to_float


def number_format(train: Train, device: torch.device) -> torch.dtype:
    """The format of the networks as `train.precision` asks for it; surrogates choose their own."""
    if train.precision == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return torch.bfloat16 if train.precision == "bfloat16" else torch.float32


def autocast(device: torch.device, precision: torch.dtype, cache: bool = True) -> torch.autocast:
    """Within it layers compute in `precision`; without `cache`, weights are cast anew at every use."""
    enabled = precision is not torch.float32
    return torch.autocast(device.type, dtype=precision, enabled=enabled, cache_enabled=cache)


def network_input(images: Tensor) -> Tensor:
    """uint8 pictures [B, ch, h, w] as floats in [0, 1], channels last: convolutions are faster so."""
    return to_float(images).contiguous(memory_format=torch.channels_last)
