"""Ten families of features whose conditional entropy is known, to hold surrogates against the truth.

A family moves one parameter of a class-conditional law. Every law is a Gaussian mixture per class, so that samples,
densities and entropies of z̃ = z + σε come from one description. Legend: N samples, C classes, K components, D dim.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from splitveil.core.seeding import generator
from splitveil.functional.entropy import gaussian_entropy

CLASSES, DIM = 4, 8


@dataclass(frozen=True)
class Law:
    """A Gaussian mixture per class."""

    share: Tensor  # [C] sums to 1
    weight: Tensor  # [C, K] sums to 1 over K
    mean: Tensor  # [C, K, D]
    covariance: Tensor  # [C, K, D, D]


@dataclass(frozen=True)
class Family:
    """One sweep: `law(parameter)` for each of `parameters`; `constant` marks those that leave the entropy alone."""

    name: str
    says: str
    parameters: tuple[float, ...]
    law: Callable[[float], Law]
    constant: bool = False


def sample(law: Law, size: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """`size` samples z [N, D] and labels y [N]; the same seed uses the same random numbers for every parameter."""
    own = generator(seed, "synthetic")
    uniform = torch.rand(size, generator=own, dtype=torch.float64)
    y = torch.searchsorted(law.share.cumsum(0), uniform).clamp(max=len(law.share) - 1)
    uniform = torch.rand(size, 1, generator=own, dtype=torch.float64)
    component = torch.searchsorted(law.weight.cumsum(1)[y], uniform)[:, 0].clamp(max=law.weight.shape[1] - 1)
    normal = torch.randn(size, law.mean.shape[-1], generator=own, dtype=torch.float64)
    return law.mean[y, component] + (_root(law.covariance)[y, component] @ normal[..., None])[..., 0], y


def true_entropy(law: Law, noise: float, samples: int = 40_000) -> float:
    """H(z̃|Y) in nats: the closed form for one component, else −E log p over samples with the exact density."""
    noisy = law.covariance + noise * torch.eye(law.mean.shape[-1], dtype=torch.float64)
    if law.weight.shape[1] == 1:
        return float((law.share * gaussian_entropy(noisy[:, 0])).sum())
    z, y = sample(Law(law.share, law.weight, law.mean, noisy), samples, seed=1)
    density = torch.distributions.MultivariateNormal(law.mean[y], noisy[y]).log_prob(z[:, None])  # [N, K]
    return -float((density + law.weight[y].log()).logsumexp(dim=1).mean())


def channel_entropy(noise: float) -> float:
    """h(σε): what is left of H(z̃|Y) when every class is one point; the difference is I(z̃; z | Y)."""
    return 0.5 * DIM * math.log(2 * math.pi * math.e * noise)


def families() -> tuple[Family, ...]:
    """The ten sweeps."""
    turn = torch.linalg.qr(torch.randn(DIM, DIM, generator=generator(0, "turn"), dtype=torch.float64)).Q
    eye = torch.eye(DIM, dtype=torch.float64)
    far = torch.randn(CLASSES, 1, DIM, generator=generator(0, "means"), dtype=torch.float64)
    steps = tuple(k / 8 for k in range(9))

    def grow(first: float) -> tuple[float, ...]:
        return tuple(first * 1.6**k for k in range(9))

    def one(covariance: Tensor, mean: Tensor = far, share: Tensor | None = None) -> Law:
        full = covariance.expand(CLASSES, 1, DIM, DIM)
        weight = torch.ones(CLASSES, 1, dtype=torch.float64)
        return Law(torch.full((CLASSES,), 1 / CLASSES).double() if share is None else share, weight, mean, full)

    def many(mean: Tensor, scale: Tensor, weight: Tensor) -> Law:
        """Components with means [C, K, D], covariances scale_k²·I and the same weights [K] in every class."""
        covariance = (scale.square()[:, None, None] * eye).expand(CLASSES, -1, DIM, DIM)
        uniform = torch.full((CLASSES,), 1 / CLASSES).double()
        return Law(uniform, weight.expand(CLASSES, -1), mean, covariance)

    def anisotropic(t: float) -> Law:
        spectrum = torch.logspace(0, -3 * t, DIM, dtype=torch.float64)
        return one(turn @ torch.diag(0.09 * DIM * spectrum / spectrum.sum()) @ turn.T)

    def low_rank(rank: float) -> Law:
        spectrum = torch.tensor([0.09 if d < rank else 1e-6 for d in range(DIM)], dtype=torch.float64)
        return one(turn @ torch.diag(spectrum) @ turn.T)

    def modes(distance: float) -> Law:
        shift = distance * turn[0] * torch.tensor([-0.5, 0.5], dtype=torch.float64)[:, None]  # [2, D]
        return many(far + shift, torch.full((2,), 0.1).double(), torch.full((2,), 0.5).double())

    def heavy_tails(t: float) -> Law:
        weight = torch.tensor([0.9, 0.1], dtype=torch.float64)
        inner = 0.09 * (1 - 0.95 * t)  # the covariance stays 0.09·I: what the core loses the tail gains
        scale = torch.tensor([inner, (0.09 - 0.9 * inner) / 0.1], dtype=torch.float64).sqrt()
        return many(far.expand(-1, 2, -1), scale, weight)

    def sample_scale(spread: float) -> Law:
        factor = 1 + spread * torch.tensor([-1.0, -0.5, 0.0, 0.5, 1.0], dtype=torch.float64)
        return many(far * factor[:, None], 0.1 * factor, torch.full((5,), 0.2).double())

    def imbalanced(t: float) -> Law:
        rest = (1 - (0.05 + 0.8 * t)) / (CLASSES - 1)
        share = torch.tensor([0.05 + 0.8 * t] + [rest] * (CLASSES - 1), dtype=torch.float64)
        scale = torch.tensor([0.5] + [0.05] * (CLASSES - 1), dtype=torch.float64)  # the growing class is the wide one
        return one(scale.square().reshape(-1, 1, 1, 1) * eye, share=share)

    def correlated(r: float) -> Law:
        return one(0.09 * ((1 - r) * eye + r))

    return (
        Family(
            "scale",
            "Gaussian classes, spread grows",
            tuple(0.02 * 1.6**k for k in range(9)),
            lambda s: one(s * s * eye),
        ),
        Family("anisotropic", "same total variance, ever fewer directions", steps, anisotropic),
        Family("low rank", "spread in 0 to 8 directions", tuple(float(r) for r in range(9)), low_rank),
        Family("modes", "two modes per class move apart", tuple(0.15 * k for k in range(9)), modes),
        Family("heavy tails", "same covariance, heavier tails", steps, heavy_tails),
        Family("sample scale", "each sample times its own factor", tuple(0.1 * k for k in range(9)), sample_scale),
        Family(
            "common scale",
            "features and means times one factor",
            grow(0.1),
            lambda s: one(0.09 * s * s * eye, mean=s * far),
        ),
        Family("imbalanced", "the wide class becomes frequent", steps, imbalanced),
        Family("correlated", "same variances, correlation grows", tuple(0.12 * k for k in range(9)), correlated),
        Family("shifted means", "class means move apart", steps, lambda t: one(0.09 * eye, mean=4 * t * far), True),
    )


def _root(covariance: Tensor) -> Tensor:
    """Symmetric square root; works for singular covariances too."""
    values, vectors = torch.linalg.eigh(covariance)
    return (vectors * values.clamp(min=0).sqrt()[..., None, :]) @ vectors.mT
