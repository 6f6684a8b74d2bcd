"""Two surrogates written the slow way, class by class, as the yardstick of `bench`. Tested equal to the fast ones."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from splitveil.functional.hinge import noise_power
from splitveil.surrogates.base import Surrogate
from splitveil.surrogates.gmm import Gmm


def gmm_loop(surrogate: Surrogate, z: Tensor, y: Tensor) -> Tensor:
    """Corrected `gmm` (SPEC 1.3-1.4: gauss_diag, aggregation paper, equal classes), one class and cluster at a time."""
    assert isinstance(surrogate, Gmm)
    bank, noise = surrogate.bank, noise_power(surrogate.options.rate_level(surrogate.sigma))
    assert bank.diagonal is not None
    x, size, batch = z.flatten(1), float(bank.size), len(y)
    labels = y.tolist()
    loss = x.new_zeros(())
    for c in range(surrogate.num_classes):
        rows = x[[i for i, label in enumerate(labels) if label == c]]
        nearest = torch.cdist(rows.detach(), bank.mean[c]).argmin(dim=1).tolist()
        counts = [nearest.count(k) for k in range(bank.num_clusters)]
        mass = [float(bank.mass[c, k]) * (1 - batch / size) + counts[k] for k in range(bank.num_clusters)]
        for k in range(bank.num_clusters):
            if mass[k] == 0:
                continue
            weight = mass[k] / sum(mass) / surrogate.num_classes
            variance = bank.diagonal[c, k]
            if counts[k]:
                expected = float(bank.mass[c, k])
                rho = min(1.0, counts[k] / expected) if expected > 0 else 1.0
                members = rows[[i for i, chosen in enumerate(nearest) if chosen == k]]
                fresh = (members - bank.mean[c, k]).square().mean(dim=0)
                # the value of eq. 6, the gradient of the batch's own variance (gradient = "batch")
                variance = fresh - fresh.detach() + rho * fresh.detach() + (1 - rho) * variance
            cost = 0.5 * torch.log1p(variance / noise).mean()
            loss = loss + weight * (cost - torch.tensor(weight).log())
    return loss


def rate_loop(surrogate: Surrogate, z: Tensor, y: Tensor) -> Tensor:
    """Plain `rate`: the pooled covariance put together class by class, then a dense D×D determinant."""
    x = z.flatten(1)
    pooled = x.new_zeros(x.shape[1], x.shape[1])
    for label in y.unique().tolist():
        rows = x[y == label]
        diff = rows - rows.mean(dim=0)
        pooled = pooled + diff.T @ diff / len(y)
    eye = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    noise = noise_power(surrogate.options.rate_level(surrogate.sigma))
    return torch.linalg.slogdet(eye + pooled / noise)[1] / (2 * x.shape[1])


LOOPS: dict[str, Callable[[Surrogate, Tensor, Tensor], Tensor]] = {"gmm": gmm_loop, "rate": rate_loop}
