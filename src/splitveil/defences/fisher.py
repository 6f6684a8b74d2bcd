"""Noise solved for a target Fisher information leakage.

Paper: Maeng et al. 2023, "Bounding the invertibility of privacy-preserving instance encoding using Fisher information"
    (NeurIPS, arXiv 2305.04146); solving for the noise as in Deng et al. 2025 (FSInfoGuard, arXiv 2504.10016).
Formula: z̃ = z + σ·ε, ε ~ N(0, I), σ² = mean_i tr(J_iᵀJ_i)/(pixels·target), J the Jacobian of the edge in eval mode.
    Then the mean dFIL = tr(JᵀJ)/(pixels·σ²) is `target`, and any *unbiased* attacker has MSE >= 1/target on pictures in
    [0, 1]; a biased one, such as a decoder with a prior, may do better. tr(JᵀJ) = E‖Jᵀv‖², v random signs; a running
    mean over training steps, kept in the state.
Defaults: target 100 (MSE >= 0.01), 8 pictures and 1 probe per step, sigma 0.1 before the first estimate.
Cost: one forward and backward pass of 8 pictures through the edge per step; nothing to learn.
Bytes: unchanged.
Counter-attack: a decoder (it is biased, so the bound does not bind it), and averaging (dFIL grows n-fold).
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from splitveil.core.options import Options as AnyOptions
from splitveil.defences.base import Defence, Step
from splitveil.defences.noise import unit_noise
from splitveil.functional.processes import mean_over_processes
from splitveil.models.split import SplitModel, evaluating

FORGET = 0.05  # after the first steps, how fast the running mean follows: about the last 20


class FisherOptions(AnyOptions):
    """The target and how well the Jacobian is estimated."""

    target: float = Field(100.0, gt=0, description="diagonal Fisher information leakage to solve for")
    samples: int = Field(8, ge=1, description="pictures per step whose Jacobian is estimated")
    probes: int = Field(1, ge=1, description="random vectors per picture")
    sigma: float = Field(0.1, gt=0, description="standard deviation before the first estimate")


class Fisher(Defence):
    """See the module docstring."""

    Options = FisherOptions
    counter_attacks = ("decoder", "average")
    learns_noise = True
    options: FisherOptions
    power: Tensor
    estimates: Tensor

    def __init__(self, options: AnyOptions) -> None:
        super().__init__(options)
        self.register_buffer("power", torch.tensor(self.options.sigma**2))  # σ²
        self.register_buffer("estimates", torch.zeros(()))  # steps that went into it

    def attach(self, model: SplitModel) -> None:
        self._edge = [model.edge]  # a plain list: it is not ours, and not part of our state

    def transmit(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return z + (self.power.sqrt() * unit_noise(z, "gaussian", generator)).to(z.dtype)

    def loss(self, step: Step) -> Tensor | None:
        """Adds no term; brings σ² up to date with the edge as it is now."""
        pictures = step.x[: self.options.samples]
        trace = squared_jacobian(self._edge[0], pictures, self.options.probes)
        # σ² = mean_i tr(J_iᵀJ_i)/(pixels·target)
        power = mean_over_processes(trace.mean() / (pictures[0].numel() * self.options.target))
        power = torch.where(torch.isfinite(power), power, self.power)  # one bad batch must not stay in the mean
        self.estimates += 1
        # a plain mean of the first estimates, so that the start is forgotten at once
        self.power.lerp_(power.to(self.power.dtype), (1 / self.estimates).clamp_min(FORGET))
        return None

    def noise_power(self) -> float:
        return float(self.power)


@torch.compiler.disable  # type: ignore[untyped-decorator] # a backward pass of its own, in another mode
def squared_jacobian(edge: nn.Module, x: Tensor, probes: int) -> Tensor:
    """Estimate of tr(JᵀJ) for each picture, [B]: E‖Jᵀv‖² over random signs v. The edge is left as it was."""
    # in training, batch norm would tie the pictures to each other
    with evaluating(edge), torch.enable_grad(), torch.autocast(x.device.type, enabled=False):
        x = x.detach().float().requires_grad_()
        z = edge(x)
        total = x.new_zeros(len(x))
        for probe in range(probes):
            signs = torch.randn_like(z).sign()
            (gradient,) = torch.autograd.grad(z, x, signs, retain_graph=probe + 1 < probes)
            total += gradient.detach().flatten(1).square().sum(dim=1)
    return total / probes
