"""Where to compute."""

from __future__ import annotations

import torch

from splitveil.core.errors import UsageError


def pick_device(name: str = "auto") -> torch.device:
    """'auto' takes a GPU when there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"There is no device called '{name}'.", "Use cpu, cuda, cuda:1 or auto.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError("This machine has no usable CUDA device.", "Use --device cpu, or ask splitveil doctor.")
    return device
