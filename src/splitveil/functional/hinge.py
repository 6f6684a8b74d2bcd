"""Hinges: what a variance costs, measured against the noise floor.

σ is the noise standard deviation, θ the `var_threshold`, γ the guard inside the logarithm, τ = max(θσ², 1e-8) + γ.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

MIN_SIGMA = 1e-3  # SPEC 0.1: σ enters every formula as max(σ, 1e-3), or the rate of a noiseless model is infinite


def noise_power(sigma: float) -> float:
    """σ² with the floor of SPEC 0.1."""
    return max(sigma, MIN_SIGMA) ** 2 if sigma < 1e150 else math.inf  # a float holds no larger square


def log_threshold(sigma: float, var_threshold: float, gamma: float) -> float:
    """log τ, τ = max(θσ², 1e-8) + γ (SPEC 0.1).

    >>> round(log_threshold(0.025, 0.125, 1e-6), 5)
    -9.44448
    """
    return math.log(max(var_threshold * noise_power(sigma), 1e-8) + gamma)


def rate(var: Tensor, sigma: float) -> Tensor:
    """½·log(1 + var/σ²): nats per dimension that Gaussian features leak through Gaussian noise (paper, eq. 7)."""
    return 0.5 * torch.log1p(var / noise_power(sigma))


def relu_hinge(log_var: Tensor, log_tau: float | Tensor) -> Tensor:
    """relu(log var − log τ): zero, with zero gradient, once the variance is under the threshold."""
    return F.relu(log_var - log_tau)


def softplus_hinge(log_var: Tensor, log_tau: float | Tensor, beta: Tensor | float, margin: Tensor | float) -> Tensor:
    """sp(β·(log var − log τ − m)) / (β + 1e-8) (SPEC 3, 4.4). The 1e-8 is the notes' own guard against β = 0."""
    return F.softplus(beta * (log_var - log_tau - margin)) / (beta + 1e-8)
