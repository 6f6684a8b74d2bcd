"""The penalty of `gated` and `slot_gated`: gates, threshold and class weights (SPEC 3, 4.4, 4.5).

Legend: A rows (classes), S centres per class (1 for `gated`), D feature dim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from splitveil.functional.dispersion import Moments
from splitveil.functional.hinge import log_threshold, rate, relu_hinge, softplus_hinge
from splitveil.surrogates.learned import BatchView
from splitveil.surrogates.learned_options import LearnedOptions

SCALARS = ("snr_thresh", "snr_sharp", "softplus_beta", "margin_m", "class_gate_a", "class_gate_b")
SLOPES = ("assign_temp", "slot_power", "snr_sharp", "softplus_beta", "class_gate_a")  # what constrain=positive keeps
SNR_GUARD = 1e-8  # SPEC 6.9: keeps the ratio finite where the mean (or the variance) is 0


class PenaltyOptions(LearnedOptions):
    """Options of the gated penalty; the scalars' defaults are N3's."""

    var_threshold: float = Field(0.125, ge=0, description="theta; smaller is stricter")
    gamma: float = Field(1e-6, ge=0, description="gamma, guard inside the logarithm")
    space: Literal["norm", "raw"] = Field("norm", description="where means and variances are taken (SPEC 9 a)")
    base: Literal["threshold", "rate"] = Field(
        "threshold", description="hinge at tau, or the rate log(1 + var/sigma^2)/2"
    )
    hinge: Literal["softplus", "relu"] = Field("softplus", description="shape of the threshold (SPEC 9 m)")
    gates: Literal["all", "none"] = Field("all", description="dimension, SNR and class gates, or no gate")
    gate_grad: Literal["flow", "detach"] = Field(
        "flow", description="detach puts all gates under stop-gradient (SPEC 9 c)"
    )
    snr: Literal["notes", "signal"] = Field("notes", description="gate on var/mean^2 or on mean^2/var (SPEC 9 k)")
    class_gate: Literal["on", "off"] = Field("on", description="gate on the class's share of the batch (SPEC 9 n)")
    normalise: bool = Field(False, description="divide both sums by the share of the used classes")
    eps_var: float | Literal["tau"] = Field(1e-6, description="variance floor; 'tau' is min(1e-4, tau/10) (SPEC 9 l)")
    learnable_scalars: bool = Field(False, description="the scalars below become parameters (SPEC 9 c)")
    constrain: Literal["none", "positive"] = Field("none", description="positive: learned slopes keep their sign")
    snr_thresh: float = Field(0.3, description="where the SNR gate is half open")
    snr_sharp: float = Field(10.0, description="slope of the SNR gate")
    softplus_beta: float = Field(1.0, gt=0, description="sharpness of the softplus threshold; large is a relu")
    margin_m: float = Field(0.1, description="moves the threshold up, in units of log variance")
    class_gate_a: float = Field(10.0, description="slope of the class gate")
    class_gate_b: float = Field(0.05, description="share of the batch at which the class gate is half open")

    @model_validator(mode="after")
    def _slopes_are_positive(self) -> Self:
        if self.constrain == "positive" and self.learnable_scalars:
            flat = [name for name in SLOPES if getattr(self, name, 1.0) <= 0]
            if flat:
                raise ValueError(f"constrain=positive needs a positive {flat[0]} to start from")
        return self

    def floor(self, sigma: float) -> float:
        """eps_var as a number."""
        if self.eps_var != "tau":
            return self.eps_var
        return min(1e-4, math.exp(log_threshold(sigma, self.var_threshold, self.gamma)) / 10)


class Scalars(nn.Module):
    """Named numbers: constants, or parameters when learnable (SPEC 4.5).

    `positive` names are stored through an inverse softplus, so that training cannot change their sign.
    """

    def __init__(self, values: Mapping[str, float], *, learnable: bool, positive: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.constants = {} if learnable else dict(values)
        self.positive = positive
        self.learned = nn.ParameterDict()
        if learnable:
            for name, value in values.items():
                # log(expm1(v)), written so that a large v does not overflow
                start = value + math.log(-math.expm1(-value)) if name in positive else value
                self.learned[name] = nn.Parameter(torch.tensor(start))

    def value(self, name: str) -> Tensor | float:
        """The number `name` as it enters the formulas."""
        if name in self.constants:
            return self.constants[name]
        stored: Tensor = self.learned[name]
        return nn.functional.softplus(stored) if name in self.positive else stored


class DimensionGate(nn.Module):
    """g_d = sigm(MLP(LN(ℓv))), MLP: D -> max(32, D//8) -> GELU -> D (SPEC 3)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        hidden = max(32, dim // 8)
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))

    def forward(self, log_var: Tensor) -> Tensor:
        """log_var [..., D] -> gate in (0, 1), [..., D]."""
        gate: Tensor = torch.sigmoid(self.mlp(self.norm(log_var)))
        return gate


@dataclass(frozen=True)
class Penalty:
    """What the gated penalty returns for each class."""

    psi: Tensor  # [A, S, D] gates ⊙ base
    var: Tensor  # [A, S, D] floored
    base: Tensor  # [A, S, D]
    class_gate: Tensor  # [A]
    soft: Tensor | None  # [A, S, D] dimension gate
    hard: Tensor | None  # [A, S, D] SNR gate
    below: Tensor  # [A, S, D] 1 where var < τ (SPEC 9 m)

    def diagnostics(self, view: BatchView) -> dict[str, Tensor]:
        """Means over the used classes, for the log."""
        named = {
            "var_mean": self.var,
            "base_mean": self.base,
            "share_below_threshold": self.below,
            "gate_soft_mean": self.soft,
            "gate_hard_mean": self.hard,
        }
        return {name: view.overall_mean(value) for name, value in named.items() if value is not None}


class GatedPenalty(nn.Module):
    """Gates and threshold on the variances of every class (SPEC 3; 4.4, eq. 16-21).

    `scalars` are further options of the surrogate that are numbers like its own: learnable where those are.
    """

    def __init__(self, dim: int, sigma: float, options: PenaltyOptions, scalars: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.options, self.sigma = options, sigma
        self.floor = options.floor(sigma)
        self.log_tau = log_threshold(sigma, options.var_threshold, options.gamma)
        self.dimension_gate = DimensionGate(dim) if options.gates == "all" else None
        positive = SLOPES if options.constrain == "positive" else ()
        values = {name: getattr(options, name) for name in (*scalars, *SCALARS)}
        self.scalars = Scalars(values, learnable=options.learnable_scalars, positive=positive)

    def forward(self, moments: Moments, share: Tensor) -> Penalty:
        """moments of each class; share [A] = p_c."""
        options, scalar = self.options, self.scalars.value
        var = moments.var.clamp(min=self.floor)  # no information below the floor, and log needs > 0
        below = (moments.var < math.exp(self.log_tau)).to(var.dtype)
        base = self._base(var)
        if self.dimension_gate is None:
            return Penalty(base, var, base, torch.ones_like(share), None, None, below)
        soft: Tensor = self.dimension_gate((var + options.gamma).log())
        ratio = var / (moments.mean.square() + SNR_GUARD)
        if options.snr == "signal":
            ratio = moments.mean.square() / (var + SNR_GUARD)
        hard = torch.sigmoid(scalar("snr_sharp") * (ratio - scalar("snr_thresh")))
        # g_c = sigm(class_gate_a·(p_c − class_gate_b))
        gate = torch.sigmoid(scalar("class_gate_a") * (share - scalar("class_gate_b")))
        if options.class_gate == "off":
            gate = torch.ones_like(share)
        if options.gate_grad == "detach":
            soft, hard, gate = soft.detach(), hard.detach(), gate.detach()
        return Penalty(soft * hard * base, var, base, gate, soft, hard, below)

    def _base(self, var: Tensor) -> Tensor:
        if self.options.base == "rate":
            return rate(var, self.options.rate_level(self.sigma))
        log_var = (var + self.options.gamma).log()  # ℓv = log(var + γ)
        if self.options.hinge == "relu":
            return relu_hinge(log_var, self.log_tau)
        return softplus_hinge(
            log_var, self.log_tau, self.scalars.value("softplus_beta"), self.scalars.value("margin_m")
        )


def adjust_variance(moments: Moments, view: BatchView, *, unbiased: bool, pooled: bool) -> Moments:
    """The options `unbiased` (M/(M−1)) and `pooled` (mass-weighted mean over used classes and centres), SPEC 9 f."""
    var = moments.var
    if unbiased:
        var = var * (view.total / (view.total - 1).clamp(min=1.0))[:, None, None]
    if pooled:
        mass = torch.where(view.used[:, None], moments.mass, 0.0) * _samples_per_mass(moments.mass, view.total)
        mass = mass / mass.sum().clamp(min=torch.finfo(var.dtype).tiny)
        var = (mass[..., None] * var).sum(dim=(0, 1), keepdim=True).expand_as(var)
    return Moments(moments.mass, moments.mean, var)


def _samples_per_mass(mass: Tensor, total: Tensor) -> Tensor:
    """Weights of a class sum to 1 or to M_c, by method; this factor makes them sum to M_c."""
    return (total / mass.sum(dim=1).clamp(min=torch.finfo(mass.dtype).tiny))[:, None]
