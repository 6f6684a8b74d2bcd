"""Number formats: which one the networks compute in, and pictures and autocast to match."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import torch
from torch import Tensor

from splitveil.core.errors import TrainingError
from splitveil.core.sections import Train
from splitveil.data.augment import to_float


def number_format(train: Train, device: torch.device) -> torch.dtype:
    """The format of the networks as `train.precision` asks for it; surrogates choose their own."""
    if train.precision == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if train.precision == "float32":
        return torch.float32
    if device.type == "cpu" and not multiplies_bfloat16():
        raise TrainingError(
            "This processor stops programs that multiply matrices in bfloat16, though it says that it can (AMX).",
            "Set train.precision=float32, or ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 in the environment.",
        )
    return torch.bfloat16


# Small products take another way: from this size on torch uses the processor's matrix unit.
PROBE = "import torch; a = torch.ones(256, 256, dtype=torch.bfloat16); a @ a"


@cache
def multiplies_bfloat16() -> bool:
    """Whether a process survives it. A virtual machine may announce AMX and forbid it: then the process is killed by a
    signal that nobody can catch, so a child tries first (a few seconds, once, and only where bfloat16 is asked of a
    CPU). A child that ends in any other way proves nothing, and training may try."""
    try:
        done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return True
    return done.returncode >= 0  # negative: ended by a signal


def autocast(device: torch.device, precision: torch.dtype, cache: bool = True) -> torch.autocast:
    """Within it layers compute in `precision`; without `cache`, weights are cast anew at every use."""
    enabled = precision is not torch.float32
    return torch.autocast(device.type, dtype=precision, enabled=enabled, cache_enabled=cache)


def network_input(images: Tensor) -> Tensor:
    """uint8 pictures [B, ch, h, w] as floats in [0, 1], channels last: convolutions are faster so."""
    return to_float(images).contiguous(memory_format=torch.channels_last)
