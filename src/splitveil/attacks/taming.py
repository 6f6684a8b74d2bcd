"""Bring what is sent into the range in which networks learn.

A feature may be tiny, huge, far from zero, of channels of very different size, multiplied by a number that differs
from picture to picture, or with outliers that swamp the rest: all of it undone by anybody who looks at the numbers, and
all of it enough to stop a decoder from learning. Such features are divided by the size of each picture's own, where
that differs, and standardised channel by channel; where there are outliers u becomes sign(u)·log(1 + |u|). Ordinary
features stay as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor

SMALL, LARGE = 3e-3, 1e3  # batch normalisation adds 1e-5 to variances; beyond thousands float32 loses digits
FAR = 100.0  # a mean so many times the spread
UNEQUAL = 1e3  # the spread of one channel over that of another
UNEVEN = 100.0  # the size of one picture's feature over that of another; a tenth on either side is left out
WILD, OUTLIER = 30.0, 100.0  # standard deviation and largest value over what 95 % stay below (Gaussian: 0.5 and 2)
SAMPLE = 1 << 20  # values that are looked at, of as many pictures as have so many: sorting takes time


class Taming:
    """Made from what was sent [N, ...]; calls change transmissions [B, ...] the same way, or not at all."""

    def __init__(self, sent: Tensor) -> None:
        sent = sent[: max(2, SAMPLE // sent[0].numel())]
        low, high = _size(sent).flatten().quantile(torch.tensor([0.1, 0.9], device=sent.device))
        self._uneven = bool(low > 0) and bool(high > UNEVEN * low)
        values = _by_channel(sent / _size(sent) if self._uneven else sent)  # [C, n]
        centre, spread = values.mean(1), values.std(1, correction=0)
        away = (values - values.median(1, keepdim=True).values).abs()
        bulk = away.quantile(0.95, dim=1)
        busy = away.quantile(0.75, dim=1) > 1e-6 * spread  # not so in a channel that is nearly always 0, as after ReLU
        beyond = (spread > WILD * bulk) | (away.amax(1) > OUTLIER * bulk)
        wild = busy & (busy & beyond).any()  # by chance one channel shows it and another does not
        centre = torch.where(wild, values.median(1).values, centre)
        spread = torch.where(wild, bulk, spread)
        alive = spread > 1e-6 * centre.abs()  # what never changes, up to rounding, tells nothing
        odd = self._uneven or bool(wild.any()) or _far(centre[alive], spread[alive]) or _unequal(spread[alive & busy])
        self.needed = bool(alive.any()) and odd
        shape = (1, -1, 1, 1) if sent.ndim == 4 else (1, *sent.shape[1:])
        self._centre = centre.view(shape)
        self._spread = torch.where(alive, spread, 1.0).view(shape)
        self._wild = wild.view(shape)

    def __call__(self, sent: Tensor) -> Tensor:
        if not self.needed:
            return sent
        sent = sent / _size(sent) if self._uneven else sent
        u = (sent.double() - self._centre) / self._spread
        return torch.where(self._wild, u.sign() * u.abs().log1p(), u).to(sent.dtype)


def _size(sent: Tensor) -> Tensor:
    """Root mean square of each picture's feature [N, 1, ...]; 1 where it is all zero."""
    size = sent.flatten(1).double().square().mean(1).sqrt().float()
    return torch.where(size > 0, size, 1.0).view(-1, *[1] * (sent.ndim - 1))


def _by_channel(sent: Tensor) -> Tensor:
    """All values of each channel [C, n]; a feature without positions has as many channels as values."""
    rows = sent.transpose(0, 1).flatten(1) if sent.ndim == 4 else sent.flatten(1).T
    return rows.double()


def _far(centre: Tensor, spread: Tensor) -> bool:
    """Whether the channels that change are too small or too large, or too far from zero for their size."""
    if len(spread) == 0:
        return False
    size = float(spread.square().mean().sqrt())
    return not SMALL <= size <= LARGE or float(centre.abs().max()) > FAR * size


def _unequal(spread: Tensor) -> bool:
    return len(spread) > 0 and float(spread.max()) > UNEQUAL * float(spread.min())
