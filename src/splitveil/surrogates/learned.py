"""What the surrogates with parameters of their own (φ) share: who trains φ, past features, projection, own randomness.

`surrogate_update` (SPEC 9 c) decides which gradient φ gets:

    minimise     rob_loss itself, as in the notes: φ may lower the loss by closing gates
    frozen       none
    ascend       fit_loss = −rob_loss at sg[x]: φ looks for the worst case
    likelihood   fit_loss = negative log-likelihood of sg[x]: φ models the classes, never the penalty

In all but the first, rob_loss is computed with detached parameters. The backward pass of the attention is most of the
cost of the last two; a trainer may leave it out of some steps (`fitting`, `fit_every`).

Legend: B batch, C classes, D feature dim, A rows: one for each class that can have enough samples in a batch of B. A is
at most C and follows from shapes alone, so with 100 classes and 128 samples no work is done for the 90 that are absent;
`segments` maps rows to classes and back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call

from splitveil.core.errors import InputError
from splitveil.core.seeding import derive_seed
from splitveil.functional.classes import safe_divide
from splitveil.functional.dispersion import PastMoments, class_mse
from splitveil.functional.reduction import reduce_classes
from splitveil.functional.segments import Segments, class_segments
from splitveil.surrogates.base import Batch, Surrogate, SurrogateOptions, Terms
from splitveil.surrogates.learned_options import LearnedOptions
from splitveil.surrogates.memory import FeatureMemory

MIN_PLACES = 8  # past features per class below which a variance means little


@dataclass(frozen=True)
class BatchView:
    """One batch as rows of active classes."""

    batch: Batch
    segments: Segments
    total: Tensor  # [A] members per class, past included
    used: Tensor  # [A] bool: present and not under the minimum

    @property
    def x(self) -> Tensor:
        """Features [B, D]."""
        return self.batch.x

    def detached(self) -> Self:
        """The same batch under sg[·]."""
        return dataclasses.replace(self, batch=dataclasses.replace(self.batch, x=self.batch.x.detach()))

    def mean_over_used(self, values: Tensor) -> Tensor:
        """Mean over the used classes: values [A, S] -> [S], 0 when no class is used."""
        return torch.where(self.used[:, None], values, 0.0).sum(dim=0) / self.used.sum().clamp(min=1)

    def overall_mean(self, values: Tensor) -> Tensor:
        """Mean over the used classes and every other axis, detached, for monitors: values [A, ...] -> 0-dim."""
        return self.mean_over_used(values.detach().flatten(1).mean(dim=1, keepdim=True))[0]


@dataclass(frozen=True)
class Assignment:
    """Who belongs where: the output of the attention, the input of the dispersion."""

    weight: Tensor  # [B, S]
    past: PastMoments | None = None  # of the past samples under the same assignment; constants

    def detach(self) -> Self:
        """The same weights as constants."""
        return dataclasses.replace(self, weight=self.weight.detach())


def as_function(module: nn.Module, dtype: torch.dtype, *, live: bool) -> Callable[..., Any]:
    """`module` as a function that computes in `dtype`; its parameters get a gradient only when `live`.

    The features choose the precision (SPEC 0.4): parameters of another one are cast on the way in, and their gradient
    back on the way out.
    """
    parameters = dict(module.named_parameters())
    if live and all(parameter.dtype is dtype for parameter in parameters.values()):
        return module
    cast = {name: (value if live else value.detach()).to(dtype) for name, value in parameters.items()}
    return lambda *inputs: functional_call(module, cast, inputs)


class LearnedSurrogate(Surrogate):
    """Base of the attention surrogates. A subclass implements the three steps that `_terms` puts together:

    `_assign`      attention: who belongs where
    `_evaluate`    dispersion, hinge and the loss of each class, under an assignment
    `_likelihood`  fit_loss, under `surrogate_update=likelihood`

    `live` says whether φ gets a gradient in this call; if not, parameters are constants (`as_function`).
    """

    options: LearnedOptions
    minimum: ClassVar[int] = 1  # samples a class needs (SPEC 0.3)
    projection: Tensor | None

    def __init__(self, **contract: Any) -> None:
        super().__init__(**contract)
        # Own stream of random numbers: drawing slot noise must not shift the noise of the training (SPEC 0.4).
        seed = derive_seed(torch.initial_seed(), "surrogate noise")
        self.noise_generator = torch.Generator().manual_seed(seed)
        width = self.options.proj_dim
        projected = 0 < width < self.dim
        self.width = width if projected else self.dim
        projection = orthogonal_map(self.dim, width, self.noise_generator) if projected else None
        self.register_buffer("projection", projection)
        self.memory: FeatureMemory | None = None

    @classmethod
    def resolve(cls, where: str = "surrogate", **given: Any) -> SurrogateOptions:
        """As for every surrogate; who names a number of past features gets that number."""
        return super().resolve(where, **({"memory_limit": None} | given if "memory" in given else given))

    def _remember_fields(self, **fields: int) -> None:
        """Switch the memory on where the options ask for it: {field: width}."""
        options = self.options
        if options.memory:
            size = options.memory
            if options.memory_limit is not None:
                # every call reads all of it: 64 places for each of 100 classes would cost more than all the rest
                size = min(size, max(MIN_PLACES, options.memory_limit // self.num_classes))
            self.memory = FeatureMemory(self.num_classes, size, fields)

    @property
    def _seen(self) -> dict[str, int]:
        """The field of the memory that attention reads, beside x: its projection, or none where it sees x itself."""
        return {} if self.projection is None else {"projected": self.width}

    def _past_seen(self, view: BatchView) -> Tensor:
        """Past samples as attention sees them, [A, n, W]; empty places are 0."""
        assert self.memory is not None
        return self.memory.read("x" if self.projection is None else "projected", view.segments, view.x.dtype)

    def project(self, x: Tensor) -> Tensor:
        """x [..., D] -> [..., W]: what attention sees (SPEC 9.1, proj_dim)."""
        return x if self.projection is None else x @ self.projection.to(x.dtype)

    def generator_for(self, device: torch.device, given: torch.Generator | None) -> torch.Generator | None:
        """The generator to draw from on `device`; compiled code can hold none and draws from the global stream."""
        if torch.compiler.is_compiling():
            return None
        if given is not None:
            return given
        if self.noise_generator.device != device:
            self.noise_generator = torch.Generator(device).manual_seed(self.noise_generator.initial_seed())
        return self.noise_generator

    def view(self, batch: Batch) -> BatchView:
        """Rows of the classes that can reach the minimum: a static number (SPEC 9 f)."""
        size = batch.x.shape[0]
        limit = size // self.minimum if self.memory is None else size
        segments = class_segments(batch.y, batch.valid, batch.count, limit)
        total = segments.count
        if self.memory is not None:
            total = total + segments.of_class(self.memory.count())
        used = (segments.count > 0) & (total >= self.minimum)
        return BatchView(batch, segments, total, used)

    def _terms(self, batch: Batch) -> Terms:
        view = self.view(batch)
        update = self.options.surrogate_update
        if update in ("ascend", "likelihood") and not self.fitting:
            update = "frozen"
        if update == "minimise":
            return self._evaluate(view, self._assign(view, live=True), live=True)
        if update == "likelihood" and self._assignment_detached():
            # sg[x] enters the attention anyway: one pass serves the loss (as constants) and the fit (with gradient)
            live = self._assign(view.detached(), live=True)
            terms = self._evaluate(view, live.detach(), live=False)
            return dataclasses.replace(terms, fit_loss=self._likelihood(view.detached(), live))
        terms = self._evaluate(view, self._assign(view, live=False), live=False)
        if update == "frozen":
            return terms
        fixed = view.detached()
        live = self._assign(fixed, live=True)
        if update == "likelihood":
            return dataclasses.replace(terms, fit_loss=self._likelihood(fixed, live))
        worst = self._evaluate(fixed, live, live=True)
        loss, _, _ = reduce_classes(
            worst.per_class_loss, worst.weight, worst.used, normalise=worst.normalise, gate=worst.gate
        )
        return dataclasses.replace(terms, fit_loss=-loss if terms.keep is None else -loss * terms.keep)

    def _class_terms(
        self,
        view: BatchView,
        loss: Tensor,
        h: Tensor,
        *,
        centre: Tensor | None = None,
        normalise: bool = False,
        gate: Tensor | None = None,
        keep: Tensor | None = None,
        diagnostics: dict[str, Tensor],
        state: dict[str, Tensor],
    ) -> Terms:
        """From rows to classes: loss [A] = L̂_c, gate [A] = g_c, and the monitor Σ_c p_c·MSE_c of h [B, ·] (SPEC 0.2).

        `centre` [A, ·] is what h is compared with, by default the mean of the class in the batch.
        """
        batch, segments, h = view.batch, view.segments, h.detach()
        if centre is None:
            centre = safe_divide(segments.sum(h), segments.count[:, None])
        share = torch.where(view.used, segments.of_class(batch.share), 0.0)
        intra = (share * class_mse(h, centre.detach(), segments)).sum()
        if normalise:
            intra = intra / share.sum().clamp(min=1 / max(len(h), 1))
        equal = self.options.class_weight == "equal"
        gate = None if gate is None else segments.to_class(gate, self.num_classes)
        return Terms(
            per_class_loss=segments.to_class(loss, self.num_classes),
            weight=torch.ones_like(batch.share) if equal else batch.share,
            used=segments.to_class(view.used, self.num_classes),
            normalise=normalise or equal,
            gate=gate,
            intra_mse=intra,
            keep=keep,
            diagnostics=diagnostics if gate is None else diagnostics | {"gate_class": gate},
            state=state,
        )

    def _commit(self, batch: Batch, terms: Terms, good: Tensor) -> None:
        if self.memory is not None:
            fields = {"x": batch.x} | terms.state
            if "projected" in self.memory.fields:
                fields["projected"] = self.project(batch.x)
            self.memory.append(fields, batch.y, batch.valid & good & batch.sound[batch.y])

    def _assignment_detached(self) -> bool:
        """Whether no gradient reaches the features through the assignment."""
        return False

    def _assign(self, view: BatchView, live: bool) -> Any:
        """Attention: an `Assignment` with gradient to φ when `live`."""
        raise InputError(f"{type(self).__name__} has no _assign.")

    def _evaluate(self, view: BatchView, assignment: Any, live: bool) -> Terms:
        """Dispersion, hinge and class losses under an assignment."""
        raise InputError(f"{type(self).__name__} has no _evaluate.")

    def _likelihood(self, view: BatchView, assignment: Any) -> Tensor:
        """fit_loss under `surrogate_update=likelihood` (SPEC 9.1): gradient to φ through the assignment."""
        raise InputError(f"{type(self).__name__} has no _likelihood.")


def orthogonal_map(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """Random [rows, columns] with orthonormal columns."""
    draw = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(draw).Q.float().contiguous()
