"""Slots with gated cross attention (SPEC 4, notes N2 and N4): a soft mixture of S slots per class.

    assignment   slots of the class by slot attention over its samples; r = softmax_k(β_a·cos(h, s_k))
    dispersion   moments of h̃ (h after gated cross attention with the slots), or of raw x, under r
    hinge        gates ⊙ softplus threshold, or ½·log(1+var/σ²)
    reduction    Σ_k w̃_k over slots, mean over dimensions, Σ_c p_c·g_c·L̂_c over classes; early shut-off

With `space=raw` the variance is that of x, so h̃ matters only if `assign_source=enhanced`; where it matters to nothing
the cross attention is not built. Legend: B batch, A rows (classes), S slots, n past samples, D feature dim, W width.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from splitveil.core.errors import ConfigError
from splitveil.functional.assignment import cosine, one_hot, slot_weights
from splitveil.functional.attention import PastTokens
from splitveil.functional.classes import safe_divide
from splitveil.functional.dispersion import PastMoments, mixture_nll, past_moments, weighted_moments
from splitveil.surrogates.base import Batch, Preset, Terms
from splitveil.surrogates.class_slots import ClassSlotAttention, GatedCrossAttention
from splitveil.surrogates.gates import GatedPenalty, Penalty, adjust_variance
from splitveil.surrogates.learned import Assignment, BatchView, as_function
from splitveil.surrogates.shut_off import EarlyShutOff
from splitveil.surrogates.slot_gated_options import CORRECTED, EARLIER, RAW, SlotGatedOptions
from splitveil.surrogates.slots import SlotSurrogate

MASS_GUARD = 1e-8  # SPEC 4.3: w_k = Σ_m r_mk + 1e-8


@dataclass(frozen=True)
class SlotAssignment(Assignment):
    """Responsibilities and the slots they come from."""

    slots: Tensor = dataclasses.field(kw_only=True)  # [A, S, W]
    past_weight: Tensor | None = None  # [A, n, S]

    def detach(self) -> Self:
        """The same as constants."""
        return dataclasses.replace(super().detach(), slots=self.slots.detach())


class SlotGated(SlotSurrogate):
    """See the module docstring."""

    Options = SlotGatedOptions
    MODES: ClassVar[Mapping[str, Mapping[str, Any]]] = {"faithful": {}, "corrected": CORRECTED}
    PRESETS: ClassVar[Mapping[str, Preset]] = {
        "slot_gated.raw": Preset("faithful", RAW),
        "slot_gated.earlier": Preset("faithful", EARLIER),
    }
    minimum = 3
    options: SlotGatedOptions

    def __init__(self, **contract: Any) -> None:
        super().__init__(**contract)
        options, width = self.options, self.width
        if options.space == "norm" and self.projection is not None:
            raise ConfigError(
                "slot_gated with proj_dim needs space=raw.", "The enhanced feature has the projected width."
            )
        bound = (3 / width) ** 0.5  # Xavier-uniform of [1, 1, W] (SPEC 4.1)
        uniform = partial(nn.init.uniform_, a=-bound, b=bound)
        start = self._start(width, init=uniform, log_sigma_init=uniform)
        self.slots = ClassSlotAttention(width, start, options)
        self.cross = None
        if options.space == "norm" or options.assign_source == "enhanced":
            if width % options.num_heads:
                raise ConfigError(
                    f"num_heads {options.num_heads} does not divide the width {width}.", "Choose a divisor."
                )
            self.cross = GatedCrossAttention(
                width,
                options.num_heads,
                qkv_proj=options.qkv_proj,
                alpha_xattn=options.alpha_xattn,
                alpha_ffn=options.alpha_ffn,
            )
        self.penalty = GatedPenalty(self.dim, self.sigma, options, ("assign_temp", "slot_power"))
        self.shut_off = EarlyShutOff(options)
        self._remember_fields(x=self.dim, **self._seen)

    def _assignment_detached(self) -> bool:
        return self.options.centroid_grad == "detach"

    def _scalar(self, name: str, live: bool) -> Tensor | float:
        value = self.penalty.scalars.value(name)
        return value if live or isinstance(value, float) else value.detach()

    def _tokens(self, x: Tensor) -> Tensor:
        """h = LN₀(x), of the projection where there is one."""
        return F.layer_norm(self.project(x), (self.width,))

    def _past_tokens(self, view: BatchView) -> Tensor | None:
        """h of past samples [A, n, W]: a copy, since the memory is overwritten before the backward pass."""
        if self.memory is None:
            return None
        return F.layer_norm(self._past_seen(view), (self.width,))

    def _enhance(self, h: Tensor, slots: Tensor, live: bool) -> Tensor:
        """h̃ of h [R, M, W] from slots [R, S, W]."""
        assert self.cross is not None
        return as_function(self.cross, h.dtype, live=live)(h, slots, self._mask(h))

    def _assign(self, view: BatchView, live: bool) -> SlotAssignment:
        options, segments = self.options, view.segments
        x = view.x.detach() if self._assignment_detached() else view.x
        h, past_h = self._tokens(x), self._past_tokens(view)  # [B, W], [A, n, W]
        past = None
        if self.memory is not None and past_h is not None:
            past = PastTokens(past_h, self.memory.filled(segments)[..., None].to(h.dtype))
        attention = as_function(self.slots, h.dtype, live=live)
        generator = self.generator_for(h.device, view.batch.generator)
        slots = attention(h, segments, past, self._mask(h), generator)  # [A, S, W]
        source = h[:, None]  # [B, 1, W]
        if options.assign_source == "enhanced":
            source = self._enhance(source, segments.take(slots), live)
        weight = self._responsibilities(source, segments.take(slots), live)[:, 0]  # [B, S]
        if past is None:
            return SlotAssignment(weight, slots=slots)
        with torch.no_grad():  # past samples are constants (SPEC 0.5)
            enhanced = self._enhance(past.tokens, slots, live) if self.cross is not None else past.tokens
            past_source = enhanced if options.assign_source == "enhanced" else past.tokens
            past_weight = self._responsibilities(past_source, slots, live) * past.filled  # [A, n, S]
        moments = self._past_moments(view, past_weight, None if options.space == "raw" else enhanced)
        return SlotAssignment(weight, moments, slots=slots, past_weight=past_weight)

    def _responsibilities(self, h: Tensor, slots: Tensor, live: bool) -> Tensor:
        """r_mk = softmax_k( β_a·cos(h_m, s_k) ) (SPEC 4.3, eq. 13)."""
        logits = self._scalar("assign_temp", live) * cosine(h, slots)
        mask = self._mask(h)
        logits = logits if mask is None else logits + mask
        if self.options.assign == "hard":
            return one_hot(logits.argmax(dim=-1), logits.shape[-1], logits.dtype)
        return torch.softmax(logits, dim=-1)

    def _past_moments(self, view: BatchView, weight: Tensor, h: Tensor | None) -> PastMoments | None:
        """Moments of past samples, of h [A, n, D], or of x when `h` is None."""
        assert self.memory is not None
        return past_moments(self.memory.read("x", view.segments, view.x.dtype) if h is None else h, weight)

    def _evaluate(self, view: BatchView, assignment: SlotAssignment, live: bool) -> Terms:
        options, batch, segments = self.options, view.batch, view.segments
        h = view.x
        if options.space == "norm":
            h = self._enhance(self._tokens(view.x)[:, None], segments.take(assignment.slots), live)[:, 0]
        # w_k = Σ_m r_mk + 1e-8 ;  μ_k = Σ_m r_mk h̃_m / w_k ;  var_kd = Σ_m r_mk (h̃_md−μ_kd)²/w_k
        moments = weighted_moments(h, assignment.weight, segments, assignment.past, guard=MASS_GUARD)
        adjusted = adjust_variance(moments, view, unbiased=options.unbiased, pooled=options.pooled)
        share = segments.of_class(batch.share)  # [A] p_c
        penalty: Penalty = as_function(self.penalty, view.x.dtype, live=live)(adjusted, share)
        weight = self._slot_weight(moments.mass, view, live).exp()  # [A, S] w̃_k
        loss = (weight[..., None] * penalty.psi).sum(dim=1).mean(dim=1)  # L̂_c = (1/D) Σ_d Σ_k w̃_k ψ_kd
        diagnostics = penalty.diagnostics(view)
        soft, hard = diagnostics.get("gate_soft_mean"), diagnostics.get("gate_hard_mean")
        decision = self.shut_off.decide(soft, hard, batch.finite & view.used.any())
        slot_share = safe_divide(moments.mass, moments.mass.sum(dim=1, keepdim=True))  # [A, S]
        return self._class_terms(
            view,
            loss,
            h,
            normalise=options.normalise,
            gate=penalty.class_gate,
            keep=(~decision.shut).to(loss.dtype),
            diagnostics=diagnostics
            | {
                "resp": assignment.weight,
                "slot_mass": segments.to_class(moments.mass, self.num_classes),
                "shut": decision.shut,
            },
            state={
                "averages": decision.averages,
                "updates": decision.updates,
                "slots": segments.to_class(assignment.slots.detach(), self.num_classes),
                "slot_share": view.mean_over_used(slot_share.detach()),
            },
        )

    def _slot_weight(self, mass: Tensor, view: BatchView, live: bool) -> Tensor:
        """log w̃_k (SPEC 4.4, eq. 18)."""
        log_weight = slot_weights(mass + MASS_GUARD, view.total, self._scalar("slot_power", live))
        mask = self._mask(mass)
        return log_weight if mask is None else torch.log_softmax(log_weight + mask, dim=-1)

    def _likelihood(self, view: BatchView, assignment: SlotAssignment) -> Tensor:
        """−mean log Σ_k w̃_k N(h; μ_k, var_k) on the fixed h = LN₀(x) or x, never h̃ (SPEC 9.1)."""
        h, past = view.x, assignment.past
        if self.options.space == "norm":
            h = self._tokens(view.x)
            if assignment.past_weight is not None:
                past = self._past_moments(view, assignment.past_weight, self._past_tokens(view))
        moments = weighted_moments(h, assignment.weight, view.segments, past, guard=MASS_GUARD)
        var = moments.var.clamp(min=self.penalty.floor)
        log_weight = self._slot_weight(moments.mass, view, live=True)
        return mixture_nll(h, moments.mean, var, log_weight, view.segments, view.used)

    def _commit(self, batch: Batch, terms: Terms, good: Tensor) -> None:
        super()._commit(batch, terms, good)
        state = terms.state
        self.shut_off.commit(state["averages"], state["updates"], good)
        self.slots.start.remember(state["slots"], terms.used & good)
        self._take_census(self.slots.start, batch, terms, good)
