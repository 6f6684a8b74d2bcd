"""Gated attention (SPEC 3, note N3): one attention-weighted Gaussian per class, with gates on dimensions and classes.

    assignment   α = softmax over the class's samples of w·(tanh(W_v h) ⊙ sigm(W_u h))
    dispersion   μ = Σ α h ;  var = Σ α (h−μ)²
    hinge        gates ⊙ softplus(log var − log τ − m), or ½·log(1+var/σ²)
    reduction    mean over dimensions, Σ_c p_c·g_c·L̂_c over classes

Legend: B batch, C classes, A rows (active classes), n past samples per class, D feature dim, W width of the attention.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from splitveil.functional.assignment import class_softmax
from splitveil.functional.dispersion import mixture_nll, past_moments, weighted_moments
from splitveil.surrogates.base import Preset, Terms
from splitveil.surrogates.gates import GatedPenalty, Penalty, PenaltyOptions, adjust_variance
from splitveil.surrogates.learned import Assignment, BatchView, LearnedSurrogate, as_function

RAW = {"space": "raw", "base": "rate", "alpha_grad": "detach", "ln_affine": False, "gates": "none", "eps_var": 1e-8}


class GatedOptions(PenaltyOptions):
    """Options of `gated`; the defaults are N3's."""

    name: Literal["gated"] = "gated"
    loss_scale: float = Field(0.1, ge=0, description="s, multiplies rob_loss in training (SPEC 6.1)")
    ln_affine: bool = Field(True, description="gain and bias in the layer norm of the features (SPEC 9 c)")
    alpha_grad: Literal["flow", "detach"] = Field(
        "flow", description="detach: the attention weights get no gradient to x"
    )
    pool_power: float = Field(0.0, ge=0, description="multiplies the class loss by (M_c/B)^pool_power; 0 is off")

    faithful_training: ClassVar[Mapping[str, Any]] = {"compose": "single", "wlr": "released", "warmup_epochs": 5}

    @model_validator(mode="after")
    def _fixed_representation(self) -> Self:
        if self.surrogate_update == "likelihood" and self.space == "norm" and self.ln_affine:
            raise ValueError(
                "surrogate_update=likelihood needs ln_affine=false, or the gain shrinks what it should model"
            )
        return self


class GatedPooling(nn.Module):
    """logit_m = w·(tanh(W_v h_m + b_v) ⊙ sigm(W_u h_m + b_u)) + b_w, with h = LN(x) (SPEC 3)."""

    def __init__(self, width: int, *, affine: bool) -> None:
        super().__init__()
        hidden = min(512, max(64, width // 4))
        self.norm = nn.LayerNorm(width, elementwise_affine=affine)
        self.value = nn.Linear(width, hidden)
        self.gate = nn.Linear(width, hidden)
        self.score = nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., W] -> logits [..., 1]."""
        h = self.norm(x)
        logits: Tensor = self.score(torch.tanh(self.value(h)) * torch.sigmoid(self.gate(h)))
        return logits


class Gated(LearnedSurrogate):
    """See the module docstring."""

    Options = GatedOptions
    MODES: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "faithful": {},
        "corrected": {
            **RAW,
            "rate_sigma": 0.1,
            "loss_scale": 1.0,
            "surrogate_update": "likelihood",
            "memory": 64,
            "proj_dim": 64,
            "class_gate": "off",
        },
    }
    PRESETS: ClassVar[Mapping[str, Preset]] = {"gated.raw": Preset("faithful", RAW)}
    minimum = 2
    options: GatedOptions

    def __init__(self, **contract: Any) -> None:
        super().__init__(**contract)
        options = self.options
        self.pooling = GatedPooling(self.width, affine=options.ln_affine)
        self.penalty = GatedPenalty(self.dim, self.sigma, options)
        # one norm serves attention and variance, as in the note, unless the attention sees a projection
        own_norm = options.space == "norm" and self.projection is not None
        self.norm = nn.LayerNorm(self.dim, elementwise_affine=options.ln_affine) if own_norm else None
        self._remember_fields(x=self.dim, **self._seen)

    def _assignment_detached(self) -> bool:
        return self.options.alpha_grad == "detach"

    def _assign(self, view: BatchView, live: bool) -> Assignment:
        pooling = as_function(self.pooling, view.x.dtype, live=live)
        x = view.x.detach() if self._assignment_detached() else view.x
        logits = pooling(self.project(x))  # [B, 1]
        # α = softmax over the class's samples
        if self.memory is None:
            return Assignment(class_softmax(logits, view.segments)[0])
        with torch.no_grad():  # past samples are constants (SPEC 0.5)
            past_logits = pooling(self._past_seen(view))  # [A, n, 1]
            past_logits = torch.where(self.memory.filled(view.segments)[..., None], past_logits, -torch.inf)
            members = self._represent(x.dtype, live)(self.memory.read("x", view.segments, x.dtype))
        weight, past_weight = class_softmax(logits, view.segments, past_logits)
        return Assignment(weight, past_moments(members, past_weight))

    def _represent(self, dtype: torch.dtype, live: bool) -> Callable[[Tensor], Tensor]:
        """The map from x to the h whose variance is taken."""
        if self.options.space == "raw":
            return lambda x: x
        norm = self.pooling.norm if self.norm is None else self.norm
        return as_function(norm, dtype, live=live)

    def _evaluate(self, view: BatchView, assignment: Assignment, live: bool) -> Terms:
        options, batch = self.options, view.batch
        h = self._represent(view.x.dtype, live)(view.x)
        # μ = Σ α_m h_m ;  var = Σ α_m (h_m−μ)²
        moments = weighted_moments(h, assignment.weight, view.segments, assignment.past)
        adjusted = adjust_variance(moments, view, unbiased=options.unbiased, pooled=options.pooled)
        share = view.segments.of_class(batch.share)  # [A] p_c
        penalty: Penalty = as_function(self.penalty, view.x.dtype, live=live)(adjusted, share)
        loss = penalty.psi.mean(dim=(1, 2))  # [A] L̂_c = mean_d( g_d ⊙ g_snr ⊙ base )
        if options.pool_power:
            loss = loss * share**options.pool_power
        return self._class_terms(
            view,
            loss,
            h,
            centre=moments.mean[:, 0],
            normalise=options.normalise,
            gate=penalty.class_gate,
            diagnostics={"attn": assignment.weight[:, 0]} | penalty.diagnostics(view),
            state={},
        )

    def _likelihood(self, view: BatchView, assignment: Assignment) -> Tensor:
        """−mean log N(h; μ, var) with weights α, on the fixed h = LN₀(x) or x (SPEC 9.1)."""
        h = self._represent(view.x.dtype, live=False)(view.x)
        moments = weighted_moments(h, assignment.weight, view.segments, assignment.past)
        var = moments.var.clamp(min=self.penalty.floor)
        log_weight = torch.zeros_like(moments.mass)  # one component
        return mixture_nll(h, moments.mean, var, log_weight, view.segments, view.used)
