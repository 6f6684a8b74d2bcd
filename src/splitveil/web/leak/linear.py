"""Least squares for every noise level at once.

With noise of variance σ² on each value, the best linear map from what is sent to the picture is

    W(σ) = (Σ + (σ² + r)·I)⁻¹ C,   Σ = Z'Z/N, C = Z'X/N over centred clean pairs, r a ridge.

With Σ = V Λ V' this is V (Λ + σ² + r)⁻¹ V'C: one eigendecomposition when the run is opened, and a slider move costs two
small products. Features wider than the number of pictures use the N x N matrix ZZ'/N, whose eigenvectors give the
same V. The ridge is chosen for each σ of a grid by the error on held-out pairs (Z, X). With S = ZV, B = V'C and
d = 1/(λ + σ² + r) that error is, the noise's share being exact,

    ‖S diag(d) B - X‖² + M σ² Σ_k d_k² ‖B_k‖² = d'(S'S ∘ BB')d - 2 d'diag(S'X B') + ‖X‖² + M σ² Σ_k d_k² ‖B_k‖²

over M held-out pictures: a quadratic form in d, so that trying many levels and ridges is cheap.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

LEVELS = 12  # noise levels for which the ridge is chosen; also the points of the curve that the page draws
RIDGES = (1e-7, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)  # relative to the mean variance of a value
HOLDOUT = 0.15
LARGEST_SIDE = 64  # larger pictures are attacked at this side and enlarged: the matrices would not fit otherwise
NEGLIGIBLE = 1e-10  # eigenvalues below this share of the largest are rounding


def levels(highest: float) -> list[float]:
    """Noise levels from 0 to `highest`, denser near 0 (cubes)."""
    return [highest * (place / (LEVELS - 1)) ** 3 for place in range(LEVELS)]


def most_pairs(values: int) -> int:
    """How many pictures the attacker uses for features of so many values: bounded by memory and patience."""
    return min(4000 if values <= 1024 else 2000, max(256, 2**25 // values))


@dataclass(frozen=True, eq=False)
class LinearAttacker:
    """A fitted family of linear maps; K eigenvectors, D values, P pixels."""

    centre_z: Tensor  # [D]
    centre_x: Tensor  # [P]
    vectors: Tensor  # [D, K]
    values: Tensor  # [K]
    coefficients: Tensor  # [K, P] = V'C
    whiten: Tensor | float  # [D]: values are divided by it, so that the noise has the same size on each
    ridges: list[tuple[float, float]]  # (sigma, ridge)
    errors: list[tuple[float, float]]  # (sigma, mean squared error on held-out pictures)
    small_shape: tuple[int, ...]
    image_shape: tuple[int, ...]

    @torch.no_grad()
    def reconstruct(self, sent: Tensor, sigma: float) -> Tensor:
        """Pictures [B, ch, h, w] in [0, 1] from what was sent [B, ...] under noise `sigma`."""
        z = sent.flatten(1) / self.whiten - self.centre_z
        ridge = min(self.ridges, key=lambda pair: abs(pair[0] - sigma))[1]
        shrunk = (z @ self.vectors) / (self.values + sigma**2 + ridge)  # [B, K]
        pictures = (shrunk @ self.coefficients + self.centre_x).unflatten(1, self.small_shape)
        if self.small_shape != self.image_shape:
            pictures = F.interpolate(pictures, size=self.image_shape[1:], mode="bilinear", align_corners=False)
        return pictures.clamp(0, 1)


@torch.no_grad()
def fit_linear(z: Tensor, x: Tensor, grid: list[float], shape: Tensor | float = 1.0) -> LinearAttacker:
    """Fit to clean features z [N, ...] and pictures x [N, ch, h, w] in [0, 1]; N >= 2.

    `shape` [...] is the standard deviation of the noise on each value at sigma = 1 (1 where it is the same on all).
    """
    image_shape = tuple(x.shape[1:])
    if max(image_shape[1:]) > LARGEST_SIDE:
        x = F.interpolate(x, size=(LARGEST_SIDE, LARGEST_SIDE), mode="area")
    small_shape = tuple(x.shape[1:])
    whiten = shape.flatten().clamp_min(1e-3) if isinstance(shape, Tensor) else shape  # hardly any noise: do not blow up
    z, x = (z.flatten(1) / whiten).double(), x.flatten(1).double()
    held = max(1, int(len(z) * HOLDOUT))
    centre_z, centre_x = z[held:].mean(0), x[held:].mean(0)
    z, x = z - centre_z, x - centre_x
    values, vectors, coefficients = _decompose(z[held:], x[held:])
    ridges, errors = [], []
    seen, truth = z[:held] @ vectors, x[:held]  # S [M, K], X [M, P]
    mean_variance = max(float(values.sum()) / z.shape[1], 1e-12)  # a constant feature has no variance at all
    outer = coefficients @ coefficients.T  # BB' [K, K]
    square, cross = (seen.T @ seen) * outer, ((seen.T @ truth) * coefficients).sum(1)  # [K, K], [K]
    for sigma in grid:
        found = []
        for ridge in (relative * mean_variance for relative in RIDGES):
            d = 1 / (values + sigma**2 + ridge)
            signal = d @ square @ d - 2 * cross @ d + truth.square().sum()
            noise = held * sigma**2 * d.square() @ outer.diagonal()
            found.append((float(signal + noise) / truth.numel(), ridge))
        error, best = min(found)
        ridges.append((sigma, best))
        errors.append((sigma, error))
    return LinearAttacker(
        centre_z.float(), centre_x.float(), vectors.float(), values.float(), coefficients.float(),
        whiten, ridges, errors, small_shape, image_shape,
    )  # fmt: skip


def _decompose(z: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Eigenvalues [K] and eigenvectors [D, K] of Z'Z/N, and V'C [K, P]."""
    count = len(z)
    if z.shape[1] <= count:
        values, vectors = torch.linalg.eigh(z.T @ z / count)
        kept = _kept(values)
        vectors = vectors[:, kept]
        return values[kept], vectors, vectors.T @ (z.T @ x) / count
    values, left = torch.linalg.eigh(z @ z.T / count)  # of ZZ'/N: the same nonzero eigenvalues
    kept = _kept(values)
    values, left = values[kept], left[:, kept]
    vectors = (z.T @ left) / (count * values).sqrt()
    return values, vectors, (values / count).sqrt()[:, None] * (left.T @ x)


def _kept(values: Tensor) -> Tensor:
    keep = values > max(float(values[-1]) * NEGLIGIBLE, 1e-14)
    keep[-1] = True  # a constant feature keeps one direction, whose coefficients are zero
    return keep
