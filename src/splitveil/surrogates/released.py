"""The released code's two index errors (SPEC 1.5), kept so that published numbers can be reproduced."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

PADDED_WEIGHT = 0.01  # what stands behind the list of weights


def statistics_class(member: Tensor, y: Tensor, count: Tensor) -> Tensor:
    """Whose statistics each class reads, [C]: the m-th present class takes those of the m-th sorted sample's class.

    `member` [C, B] is the class indicator, `y` [B], `count` [C] the class sizes. Absent classes read their own.
    """
    classes = torch.arange(count.shape[0], device=y.device)
    present = count > 0
    last = count.shape[0] - 1
    labels = torch.where(member.sum(dim=0) > 0, y, last)  # samples with a bad label go to the end
    ordered = F.pad(labels.sort().values, (0, 1), value=last)  # never empty, also for an empty batch
    rank = (present.long().cumsum(0) - 1).clamp(min=0)  # m
    return torch.where(present, ordered[rank], classes)


def padded_lists(weights: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    """Weights and variances as lists without gaps, padded at the end: after an empty cluster all indices shift.

    Weights skip clusters of fewer than two members and are padded with 0.01; variances skip empty clusters and repeat
    the last one. Both arguments [C, K]; returns the weight and the cluster whose variance stand at each place.
    """
    place = torch.arange(mass.shape[1], device=mass.device).expand(mass.shape)
    heavy, alive = mass > 1, mass > 0
    listed = weights.gather(1, (~heavy).long().argsort(dim=1, stable=True))
    weights = torch.where(place < heavy.sum(dim=1, keepdim=True), listed, PADDED_WEIGHT)
    place = torch.minimum(place, (alive.sum(dim=1, keepdim=True) - 1).clamp(min=0))
    return weights, (~alive).long().argsort(dim=1, stable=True).gather(1, place)
