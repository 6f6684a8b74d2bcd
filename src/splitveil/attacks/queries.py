"""What a device sends for pictures of the adversary's choice, as training pairs for the adversary's networks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from splitveil.attacks.pooling import Pool, pooled
from splitveil.data.augment import Augmentation, augment, to_float

Edge = Callable[[Tensor], Tensor]
Transmit = Callable[[Tensor, torch.Generator | None], Tensor]

CHUNK = 512  # pictures that pass the edge half at once
PROBES = 16  # pictures sent twice to see whether the edge half is random
CACHE_BYTES = {"cpu": 2 << 30, "cuda": 24 << 30}  # features that would take more are recomputed in every batch


@torch.no_grad()
def features(edge: Edge, pictures: Tensor) -> Tensor:
    """Clean features of uint8 pictures, in pieces; the caller keeps `edge` in eval mode."""
    return torch.cat([edge(to_float(piece)) for piece in pictures.split(CHUNK)])


def repeatable(edge: Edge, pictures: Tensor) -> bool:
    """Whether the edge half gives the same features again, up to rounding; one that draws noise itself does not."""
    few = pictures[:PROBES]
    if len(few) == 0:
        return True
    first, second = features(edge, few), features(edge, few)
    return bool((first - second).abs().max() <= 1e-3 * first.abs().max())  # kernels may sum in another order


def as_sent(sent: Tensor) -> Tensor:
    return sent


class Queries:
    """Pairs (what was sent, picture) for given pictures, with every transmission fresh.

    The features are computed once and only the randomness of the transmission is new in each draw (SPEC 8.1), unless
    the edge half is random itself or the features would not fit into memory. With `augmentation` half of every batch
    changes; the features of that half are new, too. `pool` makes one of repeated transmissions; `tame` changes a single
    one (`View.taming`).
    """

    pool: Pool = staticmethod(pooled)
    tame: Callable[[Tensor], Tensor] = staticmethod(as_sent)

    def __init__(
        self, edge: Edge, transmit: Transmit, pictures: Tensor, augmentation: Augmentation | None = None
    ) -> None:
        self._edge = edge
        self._transmit = transmit
        self._pictures = pictures  # [M, ch, h, w] uint8
        self._augmentation = augmentation
        self._features: Tensor | None = None
        if self._fits() and repeatable(edge, pictures):
            self._features = features(edge, pictures)

    def __len__(self) -> int:
        return len(self._pictures)

    @torch.no_grad()
    def batch(self, index: Tensor, generator: torch.Generator, repeats: int = 1) -> tuple[Tensor, Tensor]:
        """What is sent for the pictures at `index` [B] (`repeats` transmissions, pooled), and those pictures."""
        pictures = self._pictures[index]
        changed = 0
        if self._augmentation is not None:
            changed = len(pictures) // 2  # the others stay as they are: what will be decoded is not augmented either
            pictures = torch.cat([augment(pictures[:changed], self._augmentation, generator), pictures[changed:]])
        target = to_float(pictures)
        clean = self._edge(target) if self._features is None else self._features[index]
        if self._features is not None and changed:
            clean = torch.cat([self._edge(target[:changed]), clean[changed:]])
        if repeats == 1:
            return self.tame(self._transmit(clean, generator)), target
        return self.pool(self._transmit(clean, generator) for _ in range(repeats)), target

    def _fits(self) -> bool:
        if len(self._pictures) == 0:
            return True
        one = features(self._edge, self._pictures[:1])
        size = one.numel() * one.element_size() * len(self._pictures)
        return size <= CACHE_BYTES.get(self._pictures.device.type, CACHE_BYTES["cpu"])
