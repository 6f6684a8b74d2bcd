"""Whether what was attacked is what the device sends: for a picture alone as in a batch, in the end as at the start.

Of transmissions s that follow one law, |s_1 - s_2| is distributed like |s_3 - s_4|, whichever way each was sent. So the
distances between transmissions in batches are compared with those to transmissions of another way: the
Kolmogorov-Smirnov test holds for every law, and is certain where transmissions are not random at all.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from splitveil.data.augment import to_float
from splitveil.models.split import SplitModel

PICTURES, DRAWS = 16, 4  # 64 distances each way
SURE = 1e-6  # the most that a false alarm may have as its probability
SLIGHT = 0.05  # of the spread between pictures: less may be rounding, which a batch of another size changes

ALONE = "the model sends something else for a picture alone, as a device does, than in the batches that were attacked"
LATER = (
    "the model sends something else than when the audit began, for it keeps a state between transmissions or, behind "
    "an address, was exchanged"
)


class Steadiness:
    """Made before a model is attacked; asked afterwards for the reasons not to trust what was found.

    An endpoint is asked for PICTURES · 5 · DRAWS = 320 pictures, few beside what attacks ask for.
    """

    def __init__(self, model: SplitModel, pictures: Tensor) -> None:
        self._model, self._pictures = model, pictures[:PICTURES]
        self._usual = self._sent(3 * DRAWS, seed=0)  # [3·DRAWS, N, D]

    def doubts(self) -> list[str]:
        """Parts of a sentence, none for a model that always sends by the same law."""
        found = []
        if differ(self._usual, self._sent(DRAWS, seed=1, alone=True)):
            found.append(ALONE)
        if differ(self._usual, self._sent(DRAWS, seed=2)):
            found.append(LATER)
        return found

    @torch.no_grad()
    def _sent(self, count: int, seed: int, *, alone: bool = False) -> Tensor:
        device = self._pictures.device
        generator = torch.Generator(device).manual_seed(seed)
        # an edge half with noise of its own draws from the global stream, which attacks must find where it was
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            pieces = self._pictures.split(1 if alone else PICTURES)
            draws = [
                torch.cat([self._model.send(to_float(piece), generator) for piece in pieces]) for _ in range(count)
            ]
        return torch.stack(draws).flatten(2).double()


def differ(usual: Tensor, other: Tensor) -> bool:
    """Whether `other` [R, N, D] surely follows another law than `usual` [3R, N, D], transmissions of the same pictures.

    >>> draws = torch.randn(12, 16, 5, generator=torch.Generator().manual_seed(0))
    >>> differ(draws, draws.flip(0)[:4] + 9), differ(draws, torch.zeros(4, 16, 5)), differ(draws * 0, draws[:4] * 0)
    (True, False, False)
    """
    count = len(other)
    slight = SLIGHT * float(usual.mean(0).var(0, correction=0).mean().sqrt())
    within = _distance(usual[:count], usual[count : 2 * count]).clamp_min(slight)
    across = _distance(usual[2 * count :], other).clamp_min(slight)
    # P(gap of two empirical distributions of n values each > d) <= 2·exp(-n·d²)
    return _gap(within, across) > math.sqrt(math.log(2 / SURE) / len(within))


def _gap(one: Tensor, other: Tensor) -> float:
    """The largest difference between two empirical distribution functions (Kolmogorov-Smirnov), 0 to 1.

    >>> _gap(torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([2.0, 5.0, 6.0, 7.0]))
    0.75
    """
    places = torch.cat([one, other])
    shares = [torch.searchsorted(of.sort().values, places, right=True) / len(of) for of in (one, other)]
    return float((shares[0] - shares[1]).abs().max())


def _distance(one: Tensor, other: Tensor) -> Tensor:
    """Root mean square difference of each draw and picture [R·N]."""
    return (one - other).square().mean(2).sqrt().flatten()
