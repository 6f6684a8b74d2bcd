"""Numbers that all processes of a run agree on."""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor


def mean_over_processes(value: Tensor) -> Tensor:
    """The mean of a tensor over all processes of a run, without gradient; the tensor itself in a single process."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return value
    total = value.clone()
    dist.all_reduce(total)
    return total / dist.get_world_size()
