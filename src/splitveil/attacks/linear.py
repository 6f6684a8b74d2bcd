"""Least squares from what was sent to the picture: the exact answer to a linear edge half, and a mixing baseline.

x̂ = x̄ + (z̃ - z̄) W with W = (Z'Z + ridge·N·v·I)⁻¹ Z'X over centred auxiliary pairs, v the mean variance of z̃. The ridge
is chosen among a few by the error on held-out pairs. One transmission for each auxiliary picture and pass.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor

from splitveil.attacks.base import Attack, NotApplicableError, Progress, Reconstruction, ThreatModel, silent
from splitveil.attacks.queries import CHUNK, Queries
from splitveil.attacks.view import View
from splitveil.core.options import Options as AnyOptions


class LinearOptions(AnyOptions):
    """Ridges relative to the mean variance of a transmitted value."""

    ridges: tuple[PositiveFloat, ...] = Field(
        (1e-9, 1e-5, 1e-3, 1e-2, 1e-1, 1.0),
        min_length=1,
        description="penalties to choose from, relative to the mean variance of a sent value",
    )
    holdout: float = Field(0.1, gt=0, lt=1, description="share of the adversary's pictures kept to choose the ridge")
    largest: int = Field(8192, ge=1, description="features with more values are left to the other attacks")


class LinearAttack(Attack):
    """See the module docstring."""

    name = "linear"
    threat_model = ThreatModel(features=True, queries=True, auxiliary=True)
    Options = LinearOptions
    options: LinearOptions

    def run(self, view: View, progress: Progress = silent) -> Reconstruction:
        values = math.prod(view.feature_shape)
        if values > self.options.largest:
            raise NotApplicableError(f"The feature has {values} values, too many for least squares.")
        queries, generator = view.query(view.auxiliary, tamed=True), view.generator(self.name)
        order = torch.randperm(len(queries), generator=generator, device=view.device)
        held = max(1, int(len(order) * self.options.holdout)) if len(order) > 2 else 0
        z, x = _pairs(queries, order, generator)
        centre_z, centre_x = z[held:].mean(0), x[held:].mean(0)
        z, x = z - centre_z, x - centre_x
        fitted, answers = z[held:], x[held:]
        few = len(fitted) < values
        # (Z'Z + r)⁻¹ Z'X = Z' (ZZ' + r)⁻¹ X: of the two systems take the smaller one
        gram = fitted @ fitted.T if few else fitted.T @ fitted
        scale = fitted.square().sum(0).mean().clamp_min(1e-12)  # a constant feature has no variance at all
        eye = torch.eye(len(gram), dtype=gram.dtype, device=view.device)
        right = answers if few else fitted.T @ answers
        curve, solutions = [], []
        for number, ridge in enumerate(self.options.ridges):
            weights = torch.linalg.solve(gram + ridge * scale * eye, right)  # [n, pixels] or [D, pixels]
            weights = fitted.T @ weights if few else weights
            seen = slice(0, held) if held else slice(0, len(z))
            curve.append((ridge, float((z[seen] @ weights - x[seen]).square().mean())))
            solutions.append(weights)
            progress(self.name, number + 1, len(self.options.ridges))
        best = min(range(len(curve)), key=lambda place: curve[place][1])
        answer = (view.taming(view.sent).flatten(1).double() - centre_z) @ solutions[best] + centre_x
        images = answer.clamp(0, 1).float().unflatten(1, view.image_shape)
        # the ridge is a setting, not effort: the curve would read as one of convergence
        return Reconstruction(images, details={"ridge": curve[best][0], "held_out_mse": curve[best][1]})


def _pairs(queries: Queries, order: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """All pairs in float64, flattened: normal equations square the condition number."""
    batches = [queries.batch(piece, generator) for piece in order.split(CHUNK)]
    sent = torch.cat([pair[0].flatten(1) for pair in batches]).double()
    return sent, torch.cat([pair[1].flatten(1) for pair in batches]).double()
