"""Serial attention before a mixture: features are enhanced, then clustered (SPEC 5, note N0).

    assignment   nearest of K centroids of the own class (combined distance), from the enhanced feature X_e; bank of
                 centroids fitted once per epoch by `refresh`
    dispersion   variance of X_e around its centroid, or of raw x around the means of the clusters
    hinge        relu(log σ² − log 1e-4), θσ² in its place, or ½·log(1+var/σ²)
    reduction    Σ_k n_ck/M_c, mean over present classes

Legend: B batch, C classes, A rows (classes), K clusters, S slots, n past samples, D feature dim, W width, V of X_e.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from splitveil.core.errors import ConfigError
from splitveil.functional.assignment import combined_distance, one_hot
from splitveil.functional.attention import PastTokens
from splitveil.functional.classes import safe_divide
from splitveil.functional.dispersion import Moments, past_moments, weighted_moments
from splitveil.surrogates.bank import Bank, FitOptions, collect, pairs
from splitveil.surrogates.base import Batch, Terms
from splitveil.surrogates.enhanced_blocks import Encoded, SerialEncoder
from splitveil.surrogates.enhanced_loss import beside_the_mixture, information
from splitveil.surrogates.enhanced_options import CORRECTED, EnhancedOptions
from splitveil.surrogates.gates import adjust_variance
from splitveil.surrogates.learned import BatchView, as_function
from splitveil.surrogates.slots import SlotSurrogate
from splitveil.surrogates.token_rows import lay_out

SIGMA_RANGE = (0.001, 0.1)  # SPEC 5.3: clamp of exp(slot_log_sigma)


@dataclass(frozen=True)
class Enhancement:
    """The encoder's output, per sample."""

    gated: Tensor  # [B, V] X_g
    enhanced: Tensor  # [B, V] X_e
    gate: Tensor | None
    slots: Tensor  # [A, S, W]
    slot_share: Tensor  # [S] share of the attention, over rows that were not masked (SPEC 0.3)
    rows: Tensor  # [R, W] the encoder's input
    enhanced_rows: Tensor  # [R, W]
    counted: Tensor  # [R] bool: the row is of a class

    def detach(self) -> Self:
        """The same as constants."""
        return dataclasses.replace(self, gated=self.gated.detach(), enhanced=self.enhanced.detach())


@dataclass(frozen=True)
class _Clusters:
    """The nearest centroid of every sample."""

    centroid: Tensor  # [A, K, V]
    chosen: Tensor  # [B, K] one-hot
    past: Tensor | None  # [A, n, K] the same for past samples
    used: Tensor  # [A] bool: enough samples, and centroids to compare them with


class Enhanced(SlotSurrogate):
    """See the module docstring. Before the first `refresh` the loss is a connected 0 and diagnostics say no_bank."""

    Options = EnhancedOptions
    MODES: ClassVar[Mapping[str, Mapping[str, Any]]] = {"faithful": {}, "corrected": CORRECTED}
    auto_slots = 12
    refresh_needed = True
    refresh_in_training_batches = True
    options: EnhancedOptions

    def __init__(self, **contract: Any) -> None:
        super().__init__(**contract)
        options = self.options
        self.spatial = options.tokens == "spatial"
        width = self.feature_shape[0] if self.spatial else self.width
        if width % options.num_heads or width % 4:
            raise ConfigError(
                f"enhanced needs a width that 4 and num_heads {options.num_heads} divide, not {width}.",
                "Change num_heads, tokens or proj_dim.",
            )
        if options.parallel_alpha == "gate" and options.complexity_gate == "off":
            raise ConfigError("parallel_alpha=gate needs complexity_gate=scalar.")
        self.vector = self.dim if self.spatial else self.width  # V, width of X_e per sample
        self.raw_bank = options.bank_space == "raw" or options.architecture == "parallel"
        if options.bank_space == "raw" and options.architecture == "serial" and self.vector != self.dim:
            raise ConfigError("bank_space=raw compares X_e with raw features.", "Set proj_dim=0 as well.")
        start = self._start(
            width,
            init=lambda tensor: nn.init.normal_(tensor, std=0.02),
            log_sigma_init=nn.init.zeros_,
            sigma_range=SIGMA_RANGE,
        )
        self.encoder = SerialEncoder(width, start, options)
        self.bank = Bank(self.num_classes, options.num_clusters, self.dim if self.raw_bank else self.vector)
        self._remember_fields(x=self.dim, gated=self.vector, enhanced=self.vector)

    @torch.no_grad()
    def refresh(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Fit the K centroids of every class to X_e of clean features (z, y) (SPEC 5.7).

        Batches must have the training's size, so that sequences have the training's length.
        """
        training = self.training
        self.eval()
        try:
            x, y = collect(self._bank_features(batches), lambda *_: None, self.num_classes, self.bank.mean)
        finally:
            self.train(training)
        if not len(x):
            warnings.warn("refresh got no usable features; the bank stays as it was.", RuntimeWarning, stacklevel=2)
            return
        self.bank.fit(x, y, FitOptions(max_steps=self.options.max_steps))

    def _bank_features(self, batches: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        for z, y in pairs(batches):
            self._check(z, y)
            device = self.bank.mean.device
            with torch.autocast(device.type, enabled=False):
                batch = self._enter(z.to(device), y.to(device), None, None)
                vectors = batch.x if self.raw_bank else self._assign(self.view(batch), live=True).enhanced
            # a batch that was masked for non-finite features teaches nothing: `collect` drops and reports it
            yield torch.where(batch.finite & batch.sound[batch.y][:, None], vectors, torch.nan), y

    def _assignment_detached(self) -> bool:
        # the choice of a cluster carries no gradient, so with raw variances none reaches x through the encoder
        return self.options.space == "raw" and self.options.architecture == "serial"

    def _assign(self, view: BatchView, live: bool) -> Enhancement:
        view = view.detached() if self._assignment_detached() else view
        layout = lay_out(
            view, view.x if self.spatial else self.project(view.x), self.options.tokens, self.feature_shape[0]
        )
        rows = layout.rows
        past = None
        if self.memory is not None and self.options.tokens == "class":
            # a copy, since the memory is overwritten before the backward pass
            stored = self.memory.read("gated", view.segments, rows.dtype).clone()
            past = PastTokens(stored, self.memory.filled(view.segments)[..., None].to(rows.dtype))
        encoder = as_function(self.encoder, rows.dtype, live=live)
        generator = self.generator_for(rows.device, view.batch.generator)
        out: Encoded = encoder(rows, layout, past, self._mask(rows), generator)
        classes = layout.classes
        # a label out of range counts nowhere, and a class that would overflow is all zeros
        seen = (classes.counted & classes.take(classes.of_class(view.batch.sound))).to(rows.dtype)
        return Enhancement(
            layout.per_sample(out.gated),
            layout.per_sample(out.enhanced),
            out.gate,
            out.slots.detach(),
            safe_divide((seen[:, None] * out.attention.detach()).sum(0), seen.sum()),
            rows,
            out.enhanced,
            classes.counted,
        )

    def _cluster(self, view: BatchView, vectors: Tensor, past: Tensor | None) -> _Clusters:
        """One-hot assignment of batch and past samples to the centroids of their class (SPEC 5.7)."""
        options, segments = self.options, view.segments
        if options.bank_space == "batch" and options.architecture == "serial":
            mean = safe_divide(segments.sum(vectors.detach()), segments.count[:, None])
            centroid, fitted = mean[:, None], torch.ones_like(view.used)  # [A, 1, V]
        else:
            centroid = segments.of_class(self.bank.mean).to(vectors.dtype)  # [A, K, V]
            fitted = segments.of_class(self.bank.fitted)
        weight = options.cos_weight * (vectors.shape[1] if options.cos_relative else 1)
        weight = weight if options.distance == "corrected" else -weight
        distance = combined_distance(vectors.detach(), segments.take(centroid), weight)  # [B, K]
        chosen = one_hot(distance.argmin(dim=-1), distance.shape[-1], vectors.dtype)
        past_chosen = None
        if self.memory is not None and past is not None:
            filled = self.memory.filled(segments)[..., None]
            distance = combined_distance(past, centroid[:, None], weight)  # [A, n, K]
            past_chosen = one_hot(distance.argmin(dim=-1), distance.shape[-1], vectors.dtype) * filled
        return _Clusters(centroid, chosen, past_chosen, view.used & fitted)

    def _evaluate(self, view: BatchView, assignment: Enhancement, live: bool) -> Terms:
        options, segments = self.options, view.segments
        if options.bank_space != "batch":
            self.bank.warn_unfitted("enhanced", stacklevel=4)
        parallel = options.architecture == "parallel"
        read = (
            {} if self.memory is None else {f: self.memory.read(f, segments, view.x.dtype) for f in self.memory.fields}
        )
        source = "x" if parallel else "enhanced"
        clusters = self._cluster(view, view.x if parallel else assignment.enhanced, read.get(source))
        view = dataclasses.replace(view, used=clusters.used)
        space = "x" if parallel or options.space == "raw" else options.space
        h = {"x": view.x, "gated": assignment.gated, "enhanced": assignment.enhanced}[space]
        past = past_moments(read[space], clusters.past) if clusters.past is not None else None
        moments = weighted_moments(h, clusters.chosen, segments, past)
        if space == source:  # around the centroid, not the mean: E(h−c)² = var + (mean−c)²
            moments = Moments(moments.mass, moments.mean, moments.var + (moments.mean - clusters.centroid).square())
        moments = adjust_variance(moments, view, unbiased=options.unbiased, pooled=options.pooled)
        share = safe_divide(moments.mass, view.total[:, None])  # n_ck/M_c
        base = information(moments.var, self.sigma, options)  # [A, K] I_ck
        loss = (share * base).sum(dim=1)  # L_c
        if parallel:
            loss = beside_the_mixture(loss, assignment.enhanced, segments, assignment.gate, options.parallel_alpha)
        gate = {} if assignment.gate is None else {"complexity_gate": assignment.gate}
        slots = assignment.slots
        return self._class_terms(
            view,
            loss,
            h,
            diagnostics={
                "resp": clusters.chosen,
                "slot_mass": segments.to_class(moments.mass, self.num_classes),
                "var_mean": view.overall_mean(moments.var),
                "base_mean": view.overall_mean(base),
                "no_bank": ~self.bank.fitted.any() & (options.bank_space != "batch"),
                **gate,
            },
            state={
                "gated": assignment.gated.detach(),
                "enhanced": assignment.enhanced.detach(),
                "slots": segments.to_class(slots, self.num_classes) if options.tokens == "class" else slots,
                "slot_share": assignment.slot_share,
            },
        )

    def _likelihood(self, view: BatchView, assignment: Enhancement) -> Tensor:
        """mean (X_e − LN₀(sg[x]))² over rows and dimensions (SPEC 9.1); rows of no class count nowhere."""
        target = F.layer_norm(assignment.rows.detach(), assignment.rows.shape[-1:])
        distance = (assignment.enhanced_rows - target).square().mean(dim=1)
        counted = assignment.counted.to(distance.dtype)
        return safe_divide((counted * distance).sum(), counted.sum())

    def _commit(self, batch: Batch, terms: Terms, good: Tensor) -> None:
        super()._commit(batch, terms, good)
        if self.options.tokens == "class":
            self.encoder.slots.start.remember(terms.state["slots"], terms.used & good)
        self._take_census(self.encoder.slots.start, batch, terms, good)
