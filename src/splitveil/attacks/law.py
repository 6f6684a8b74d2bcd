"""What anybody who knows the transmission can find out about its randomness, by trial."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from splitveil.attacks.queries import Transmit

TRIALS = 512  # transmissions of one feature from which the law is learned
MOST_TERMS = 64  # each is then seen 8 times on average; that one of them is missed has a probability of 2 %


@dataclass(frozen=True)
class Law:
    """How transmissions of one feature scatter."""

    unbiased: bool  # around the feature itself
    erases: bool  # values are left out (sent as 0) at random, and those that arrive scatter around the feature's own
    variance: float  # mean over the values of a feature
    terms: Tensor | None = None  # [K, ...] where each transmission adds one of K fixed tensors, 2 to MOST_TERMS


@torch.no_grad()
def law_of(transmit: Transmit, feature: Tensor, generator: torch.Generator) -> Law:
    """Transmit one feature [1, ...] many times and look. A value of exactly 0 in it could not be seen to be erased."""
    z = feature.expand(TRIALS, *feature.shape[1:]).contiguous()
    sent = transmit(z, generator)
    unbiased = _scatters(sent, torch.ones_like(sent), z[0])
    arrived = (sent != 0).to(sent.dtype)
    erases = not unbiased and bool((arrived.var(0) > 0).any()) and _scatters(sent, arrived, z[0])
    return Law(unbiased, erases, float(sent.var(0).mean()), _terms(transmit, z, sent, generator))


def _terms(transmit: Transmit, z: Tensor, sent: Tensor, generator: torch.Generator) -> Tensor | None:
    """What was added in the trials [T, ...] of z, if those are few tensors, and the same for another feature."""
    if len(sent.flatten(1)[:, 0].unique()) > MOST_TERMS:  # of one value there are not more kinds than of all
        return None
    terms = _kinds(sent) - z[0]
    if not 2 <= len(terms) <= MOST_TERMS:
        return None
    other = 2 * z
    again = _kinds(transmit(other, generator)) - other[0]
    gap = torch.cdist(again.flatten(1), terms.flatten(1))  # [K', K]
    close = 1e-4 * (1 + float(z.abs().max())) * terms[0].numel() ** 0.5  # what rounding may add to the distance
    return terms if bool((gap.amin(1) <= close).all()) else None


def _kinds(sent: Tensor) -> Tensor:
    """The different ones of [T, ...]."""
    return sent.flatten(1).unique(dim=0).unflatten(1, sent.shape[1:])


def _scatters(sent: Tensor, arrived: Tensor, z: Tensor) -> bool:
    """Whether those of the trials [T, ...] that arrived have the mean z [...]."""
    count = arrived.sum(0)
    mean = (sent * arrived).sum(0) / count.clamp_min(1)  # a value that never arrived is not judged
    spread = (((sent - mean).square() * arrived).sum(0) / (count - 1).clamp_min(1)).sqrt()
    # six standard errors: never wrong by chance among thousands of values
    close = (mean - z).abs() <= 6 * spread / count.clamp_min(1).sqrt() + 1e-6
    return bool((close | (count == 0)).all())
