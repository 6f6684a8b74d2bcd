"""Independent random streams from one seed.

Each use of randomness draws from its own stream, named by purpose. Adding a consumer therefore never shifts another
one's numbers: a surrogate that draws slot noise leaves the training noise bit for bit as it was.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def derive_seed(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for one purpose, stable across machines and versions."""
    text = "/".join([str(seed), *map(str, purpose)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *purpose: str | int, device: str | torch.device = "cpu") -> torch.Generator:
    """A torch generator for one purpose."""
    import torch

    return torch.Generator(device=device).manual_seed(derive_seed(seed, *purpose))
