"""Initial weights of an adversary's networks come from the attack's own random stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(generator: torch.Generator) -> Iterator[None]:
    """Within the block, new layers draw their weights from a seed that `generator` gives.

    Layers initialise themselves from torch's global stream: it is borrowed here and given back as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**62, (), generator=generator, device=generator.device)))
        yield
