"""Slot attention as a clustering, with its own classifier path (SPEC 2, note N1).

    assignment   K = S centroids per class: mean slots of its samples, mapped to feature space; nearest or softmax
    dispersion   σ²_ck = Σ_i a_ik·‖x_i − c_ck‖² / (D·n_ck), or the variance of x around its weighted means
    hinge        log(σ²_ck + σ²), or ½·log(1 + σ²_ck/σ²)
    reduction    Σ_k w_ck, mean over present classes

Legend: B batch, C classes, A rows (classes), N tokens, S slots, n past samples, d channels, D feature dim,
V width of the vectors compared with the centroids.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from splitveil.core.errors import ConfigError, UsageError
from splitveil.functional.assignment import assign_to_centroids, match_slots, past_square_distances
from splitveil.functional.classes import safe_divide
from splitveil.functional.dispersion import mixture_nll, past_moments, weighted_moments
from splitveil.functional.hinge import log_threshold, noise_power, rate, relu_hinge
from splitveil.surrogates.base import Batch, Terms
from splitveil.surrogates.learned import BatchView, as_function
from splitveil.surrogates.slot_cross_options import CORRECTED, SlotCrossOptions
from splitveil.surrogates.slots import SlotSurrogate
from splitveil.surrogates.token_slots import Classified, SlotClassifier, TokenSlotAttention

FIT_FLOOR = 1e-8  # variance floor of the likelihood: a sample on its centroid must not have infinite density


@dataclass(frozen=True)
class Centroids:
    """Output of the attention: K = S centroids per class, in the space of the compared vectors."""

    centroid: Tensor  # [A, S, V]
    slots: Tensor  # [B, S, d] of each sample
    mean_slots: Tensor  # [A, S, d]

    def detach(self) -> Self:
        """The same as constants."""
        return dataclasses.replace(self, centroid=self.centroid.detach())


@dataclass(frozen=True)
class _Weights:
    """Who belongs to which centroid, and how far away."""

    weight: Tensor  # [B, S] a_ik
    past: Tensor | None  # [A, n, S] the same for past samples
    mass: Tensor  # [A, S] n_ck, past included
    mean_square: Tensor  # [A, S] Σ_i a_ik·δ_ik / n_ck, δ a squared distance: D·σ²_ck


class SlotCross(SlotSurrogate):
    """See the module docstring."""

    Options = SlotCrossOptions
    MODES: ClassVar[Mapping[str, Mapping[str, Any]]] = {"faithful": {}, "corrected": CORRECTED}
    options: SlotCrossOptions

    def __init__(self, **contract: Any) -> None:
        super().__init__(**contract)
        options = self.options
        channels = self.feature_shape[0]
        if channels % options.num_heads:
            raise ConfigError(
                f"num_heads {options.num_heads} does not divide the {channels} channels of the feature.",
                f"Choose a divisor of {channels}.",
            )
        start = self._start(channels, init=nn.init.normal_, log_sigma_init=nn.init.normal_)
        self.slots = TokenSlotAttention(channels, start, options)
        self.to_features = nn.Linear(channels, self.width) if options.match == "project_slots" else None
        self.to_slots = nn.Linear(self.width, channels) if options.match == "project_features" else None
        self.head = SlotClassifier(channels, self.num_classes, options) if options.classifier == "attention" else None
        self.log_tau = log_threshold(self.sigma, options.var_threshold, options.gamma)
        self._remember_fields(x=self.dim, slots=self.num_slots * channels, **self._seen)

    def tokens(self, x: Tensor) -> Tensor:
        """x [..., D] in (channel, row, column) order -> t [..., N, d], t[b, h·W+w, c] = z[b, c, h, w] (SPEC 2.1)."""
        return x.unflatten(-1, (self.feature_shape[0], -1)).transpose(-1, -2)

    def classify(self, z: Tensor, *, generator: torch.Generator | None = None) -> Classified:
        """Logits from the *noisy* feature z [B, *feature_shape] (SPEC 2.3, `attention_classify_features`)."""
        if self.head is None:
            raise UsageError("This slot_cross has no classifier of its own.", "Create it with classifier='attention'.")
        dtype = torch.promote_types(z.dtype, self.slots.start.slot_mu.dtype)
        tokens = self.tokens(z.flatten(1)).to(dtype)
        generator = self.generator_for(z.device, generator)
        slots, _ = as_function(self.slots, dtype, live=True)(tokens, None, self._mask(tokens), generator)
        result: Classified = as_function(self.head, dtype, live=True)(tokens, slots, generator)
        return result

    def _assignment_detached(self) -> bool:
        return self.options.centroid_grad == "detach"

    def _compared(self, x: Tensor, projected: Tensor | None, live: bool) -> Tensor:
        """The vectors [..., V] that are compared with centroids: x [..., D], or its `projected` form."""
        if self.options.match == "token_mean":
            return self.tokens(x).mean(dim=-2)
        x = self.project(x) if projected is None else projected
        if self.to_slots is None:
            return x
        return as_function(self.to_slots, x.dtype, live=live)(x)

    def _assign(self, view: BatchView, live: bool) -> Centroids:
        """m_ck = (1/M_c)·Σ_i s_ik, brought to the space of the features (SPEC 2.4, step 1)."""
        options, segments, batch = self.options, view.segments, view.batch
        x = view.x.detach() if self._assignment_detached() else view.x
        attention = as_function(self.slots, x.dtype, live=live)
        generator = self.generator_for(x.device, batch.generator)
        slots, _ = attention(self.tokens(x), batch.y, self._mask(x), generator)  # [B, S, d]
        if options.slot_match:
            slots = match_slots(slots, segments)
        total = segments.sum(slots)  # [A, S, d]
        if self.memory is not None:
            past = self.memory.read("slots", segments, x.dtype)  # [A, n, S·d]; empty places are 0
            total = total + past.sum(dim=1).view_as(total)
        mean_slots = safe_divide(total, view.total[:, None, None])
        centroid = mean_slots
        if self.to_features is not None:  # project_slots: c_ck = P·m_ck + b
            centroid = as_function(self.to_features, x.dtype, live=live)(mean_slots)
        elif options.match == "pad":
            centroid = F.pad(mean_slots, (0, self.width - mean_slots.shape[-1]))
        return Centroids(centroid, slots.detach(), mean_slots.detach())

    def _weigh(self, view: BatchView, compared: Tensor, centroid: Tensor, live: bool) -> _Weights:
        """Distances and assignment of batch and past samples (SPEC 2.4, steps 2 and 3)."""
        segments, options = view.segments, self.options
        distance = (compared[:, None] - segments.take(centroid)).square().sum(dim=-1)  # δ_ik [B, S]
        past_distance = filled = None
        if self.memory is not None:
            filled = self.memory.filled(segments)[..., None]  # [A, n, 1]
            with torch.no_grad():  # past samples are constants (SPEC 0.5)
                past = self._compared(self.memory.read("x", segments, view.x.dtype), self._past_seen(view), live)
                past_distance = past_square_distances(past, centroid)  # [A, n, S]
        weight, past_weight = assign_to_centroids(
            distance,
            segments,
            past_distance,
            filled,
            temperature=options.assign_temp if options.assign == "soft" else None,
            mask=self._mask(distance),
        )
        mass = segments.sum(weight)  # n_ck
        scatter = segments.sum(weight * distance)  # Σ_i a_ik·δ_ik
        if past_weight is not None and past_distance is not None:
            mass = mass + past_weight.sum(dim=1)
            scatter = scatter + (past_weight * past_distance).sum(dim=1)
        guard = 1e-8 if options.assign == "soft" else 0.0  # SPEC 0.3: mass + 1e-8 in denominators
        return _Weights(weight, past_weight, mass, safe_divide(scatter, mass + guard))

    def _evaluate(self, view: BatchView, assignment: Centroids, live: bool) -> Terms:
        options, segments = self.options, view.segments
        compared = self._compared(view.x, None, live)  # [B, V]
        centroid = assignment.centroid.detach() if options.centroid_grad == "detach" else assignment.centroid
        weights = self._weigh(view, compared, centroid, live)
        h = compared
        if options.space == "slots":
            width = 1 if options.norm == "sum" else compared.shape[1]
            var = weights.mean_square / width  # σ²_ck [A, S]
        else:
            h, past = view.x, None
            if self.memory is not None and weights.past is not None:
                past = past_moments(self.memory.read("x", segments, view.x.dtype), weights.past.detach())
            moments = weighted_moments(view.x, weights.weight, segments, past)
            var = moments.var.sum(dim=-1) if options.norm == "sum" else moments.var.mean(dim=-1)
        if options.unbiased:
            var = var * (view.total / (view.total - 1).clamp(min=1.0))[:, None]
        if options.pooled:
            mass = torch.where(view.used[:, None], weights.mass, 0.0)
            var = safe_divide((mass * var).sum(), mass.sum()).expand_as(var)
        share = safe_divide(weights.mass, view.total[:, None])  # w_ck = n_ck/M_c
        loss = (share * self._form(var)).sum(dim=1)  # L_c
        return self._class_terms(
            view,
            loss,
            h,
            diagnostics={
                "resp": weights.weight,
                "slot_mass": segments.to_class(weights.mass, self.num_classes),
                "var_mean": view.overall_mean(var),
                "share_below_threshold": view.overall_mean((var < math.exp(self.log_tau)).to(var.dtype)),
            },
            state={
                "slots": assignment.slots.flatten(1),
                "mean_slots": segments.to_class(assignment.mean_slots, self.num_classes),
                "slot_share": view.mean_over_used(share.detach()),
            },
        )

    def _form(self, var: Tensor) -> Tensor:
        """The cost of a variance (SPEC 2.4, step 4; 9 q; 9.1)."""
        if self.options.hinge:
            return relu_hinge((var + self.options.gamma).log(), self.log_tau)
        if self.options.form == "rate":
            return rate(var, self.options.rate_level(self.sigma))
        guarded = var + noise_power(self.sigma)
        return guarded.log() if self.options.form == "log" else guarded

    def _likelihood(self, view: BatchView, assignment: Centroids) -> Tensor:
        """−mean log Σ_k w_ck N(sg[x]; c_ck, σ²_ck·I), in the space of the compared vectors (SPEC 9.1)."""
        compared = self._compared(view.x, None, live=True)
        weights = self._weigh(view, compared, assignment.centroid, live=True)
        var = (weights.mean_square / compared.shape[1]).clamp(min=FIT_FLOOR)
        share = safe_divide(weights.mass, view.total[:, None])
        # a centroid without members has weight 0: a large negative number, since log 0 has no gradient
        log_weight = torch.where(share > 0, torch.where(share > 0, share, 1.0).log(), -1e4)
        return mixture_nll(compared, assignment.centroid, var[..., None], log_weight, view.segments, view.used)

    def _commit(self, batch: Batch, terms: Terms, good: Tensor) -> None:
        super()._commit(batch, terms, good)
        self.slots.start.remember(terms.state["mean_slots"], terms.used & good)
        self._take_census(self.slots.start, batch, terms, good)
