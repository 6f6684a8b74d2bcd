"""What anybody who knows the transmission can find out about its randomness, by trial."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splitveil.attacks.queries import Transmit

TRIALS = 512  # transmissions of one feature from which the law is learned


@dataclass(frozen=True)
class Law:
    """How transmissions of one feature scatter."""

    unbiased: bool  # around the feature itself
    erases: bool  # values are left out (sent as 0) at random, and those that arrive scatter around the feature's own
    variance: float  # mean over the values of a feature


@torch.no_grad()
def law_of(transmit: Transmit, feature: Tensor, generator: torch.Generator) -> Law:
    """Transmit one feature [1, ...] many times and look. A value of exactly 0 in it could not be seen to be erased."""
    z = feature.expand(TRIALS, *feature.shape[1:]).contiguous()
    sent = transmit(z, generator)
    unbiased = _scatters(sent, torch.ones_like(sent), z[0])
    arrived = (sent != 0).to(sent.dtype)
    erases = not unbiased and bool((arrived.var(0) > 0).any()) and _scatters(sent, arrived, z[0])
    return Law(unbiased, erases, float(sent.var(0).mean()))


def _scatters(sent: Tensor, arrived: Tensor, z: Tensor) -> bool:
    """Whether those of the trials [T, ...] that arrived have the mean z [...]."""
    count = arrived.sum(0)
    mean = (sent * arrived).sum(0) / count.clamp_min(1)  # a value that never arrived is not judged
    spread = (((sent - mean).square() * arrived).sum(0) / (count - 1).clamp_min(1)).sqrt()
    # six standard errors: never wrong by chance among thousands of values
    close = (mean - z).abs() <= 6 * spread / count.clamp_min(1).sqrt() + 1e-6
    return bool((close | (count == 0)).all())
