"""What a component of the mixture costs, as a function of its variance (SPEC 1.4, the table of forms).

v is the scalar variance [...], s the diagonal [..., D], and for the full covariance log det(I + Σ/floor) [...], where
`floor` is σ² or γ: relative to the floor, so that a variance far below it does not drown in rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from splitveil.functional.hinge import log_threshold, noise_power, rate, relu_hinge

Form = Literal["hinge_scalar", "linear", "gauss_scalar", "gauss_diag", "gauss_full", "logdet_hinge"]
Covariance = Literal["scalar", "diag", "full"]
COVARIANCE: dict[Form, Covariance] = {
    "hinge_scalar": "scalar",
    "linear": "scalar",
    "gauss_scalar": "scalar",
    "gauss_diag": "diag",
    "gauss_full": "full",
    "logdet_hinge": "full",
}
DEFAULT_GAMMA = {"hinge_scalar": 0.01, "logdet_hinge": 1e-6}


@dataclass(frozen=True)
class ComponentCost:
    """One row of the table of SPEC 1.4 with its constants; `cost` maps the statistic of the form to the loss."""

    form: Form
    sigma: float
    var_threshold: float
    gamma: float
    dim: int
    per_dim: bool

    @property
    def floor(self) -> float:
        """The multiple of I added to the full covariance: σ² for gauss_full, γ for logdet_hinge."""
        return self.gamma if self.form == "logdet_hinge" else noise_power(self.sigma)

    def cost(self, statistic: Tensor) -> Tensor:
        """The loss of components from v, s or log det(I + Σ/floor), whichever the form uses."""
        if self.form == "hinge_scalar":
            # relu(log(v+γ) − log(θσ²+γ))
            threshold = math.log(self.var_threshold * noise_power(self.sigma) + self.gamma)
            return relu_hinge(torch.log(statistic + self.gamma), threshold)
        if self.form == "linear":
            return statistic + 0.001  # the released constant, SPEC 1.4
        if self.form == "logdet_hinge":
            # relu((1/D)·log det(Σ+γI) − log τ)
            per_dim = statistic / self.dim + math.log(self.gamma)
            return relu_hinge(per_dim, log_threshold(self.sigma, self.var_threshold, self.gamma))
        # the Gaussian forms: ½·log(1+v/σ²), (1/D)·Σ_d ½·log(1+s_d/σ²), (1/2D)·(log det(Σ+σ²I) − D·log σ²)
        if self.form == "gauss_scalar":
            value = rate(statistic, self.sigma)
        elif self.form == "gauss_diag":
            value = rate(statistic, self.sigma).mean(dim=-1)
        else:
            value = 0.5 * statistic / self.dim
        return value if self.per_dim else value * self.dim

    def stored_cost(self, variance: Tensor, diagonal: Tensor | None, eigen: Tensor | None) -> Tensor:
        """The loss from stored statistics: scalar [...], diagonal or eigenvalues [..., D]."""
        kind = COVARIANCE[self.form]
        if kind == "scalar":
            return self.cost(variance)
        if kind == "diag":
            assert diagonal is not None
            return self.cost(diagonal)
        assert eigen is not None
        return self.cost(torch.log1p(eigen.double() / self.floor).sum(dim=-1)).to(variance.dtype)
