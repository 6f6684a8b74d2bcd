"""Several transmissions of the same pictures made into one that says more."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

Pool = Callable[[Iterable[Tensor]], Tensor]


def pooled(transmissions: Iterable[Tensor], *, erased: bool = False) -> Tensor:
    """Mean of several transmissions of the same pictures [B, ...].

    Where a channel leaves values out (`erased`), the mean is over the transmissions in which a value arrived: after n
    of them only those that never did are missing, and no other is shrunk.

    >>> sent = [torch.tensor([2.0, 0.0, 0.0]), torch.tensor([2.0, 3.0, 0.0])]
    >>> pooled(sent), pooled(sent, erased=True)
    (tensor([2.0000, 1.5000, 0.0000]), tensor([2., 3., 0.]))
    """
    total: Tensor | None = None
    count: Tensor | None = None
    for sent in transmissions:
        arrived = (sent != 0).to(sent.dtype) if erased else torch.ones((), dtype=sent.dtype, device=sent.device)
        total = sent if total is None else total + sent
        count = arrived if count is None else count + arrived
    assert total is not None
    assert count is not None
    return total / count.clamp_min(1)  # a value that never arrived stays 0


def without_term(transmissions: Iterable[Tensor], *, terms: Tensor) -> Tensor:
    """The features [B, ...] behind transmissions s_t = z + n_k, each with one of few known terms n [K, ...].

    Two transmissions of a picture differ by two of the terms. The first has the term under which all others fit best:

        k* = argmin_k Σ_t min_l |s_t − s_1 + n_k − n_l|²,   z = s_1 − n_k*

    Where all transmissions of a picture are equal nothing tells the terms apart, and the first one is taken.

    >>> terms = torch.tensor([[1.0, 0.0], [0.0, 3.0]])
    >>> without_term([torch.tensor([[5.0, 8.0]]), torch.tensor([[6.0, 5.0]])], terms=terms)
    tensor([[5., 5.]])
    """
    rest = iter(transmissions)
    first = next(rest)
    noise = terms.flatten(1).to(first.dtype)  # [K, D]
    apart = torch.cdist(noise, noise).square()  # [K, K] |n_k − n_l|²
    misfit = torch.zeros(len(first), len(noise), dtype=first.dtype, device=first.device)  # [B, K]
    for sent in rest:
        along = (sent - first).flatten(1) @ noise.T  # [B, K] d·n_k, with d = s_t − s_1
        # |d + n_k − n_l|² = |d|² + 2·d·(n_k − n_l) + |n_k − n_l|²; |d|² is the same for all k
        misfit += (apart + 2 * (along[:, :, None] - along[:, None, :])).amin(2)
    return first - terms.to(first.dtype)[misfit.argmin(1)]
