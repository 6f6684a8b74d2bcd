"""Where slots begin and how many there are: what `slot_cross`, `slot_gated` and `enhanced` share.

Legend: C classes, A rows (classes or samples), S slots, W width of a slot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from splitveil.surrogates.base import Batch, Terms
from splitveil.surrogates.learned import LearnedSurrogate
from splitveil.surrogates.learned_options import LearnedOptions

PERSIST = 0.99  # SPEC 9 d: moving average of the slots of a class
PRUNE_UNDER = 0.01  # SPEC 9.1: a slot whose share of the mass stays under 1 % for an epoch goes
PER_SLOT_SIGMA = 0.1  # SPEC 9 d: σ_s ≤ 0.1 when every slot has its own mean

CORRECTED_SLOTS: Mapping[str, Any] = {  # what SPEC 9 recommends for every surrogate with slots
    "rate_sigma": 0.1,
    "surrogate_update": "likelihood",
    "fit_every": 4,
    "memory": 64,
    "proj_dim": 64,
    "slot_init": "per_slot",
    "slot_noise": "fixed",
    "token_norm": "mean",
}


class SlotOptions(LearnedOptions):
    """Options of slots; each surrogate sets its own numbers."""

    num_slots: int | Literal["auto"] = Field(8, description="S; 'auto' prunes empty slots and splits the heaviest")
    num_iterations: int = Field(3, ge=1, description="T, rounds of slot attention")
    slot_init: Literal["shared", "per_slot"] = Field(
        "shared", description="one learned mean for all slots, or one for each, with a spread of at most 0.1 (SPEC 9 d)"
    )
    slot_noise: Literal["sample", "fixed", "mean"] = Field(
        "sample", description="fresh noise, one stored draw, or none; evaluation never samples (SPEC 0.4)"
    )
    slot_persist: bool = Field(False, description="slots of a class start from a moving average of its past slots")

    @model_validator(mode="after")
    def _slots_differ(self) -> Self:
        if self.slot_init == "shared" and self.slot_noise == "mean":
            raise ValueError("slot_noise=mean needs slot_init=per_slot, or all slots stay identical")
        if self.slot_init == "shared" and self.num_slots == "auto":
            raise ValueError("num_slots=auto needs slot_init=per_slot: slots that are redrawn have no identity")
        if isinstance(self.num_slots, int) and self.num_slots < 1:
            raise ValueError("num_slots must be at least 1")
        return self


class SlotStart(nn.Module):
    """s⁰_k = slot_mu + σ_s ⊙ ε_k, σ_s = exp(slot_log_sigma) within `sigma_range` (SPEC 2.2, 4.1, 5.3)."""

    noise: Tensor  # [S, W] the stored draw
    persisted: Tensor  # [C, S, W]
    has_persisted: Tensor  # [C] bool

    def __init__(
        self,
        slots: int,
        width: int,
        num_classes: int,
        options: SlotOptions,
        generator: torch.Generator,
        *,
        init: Callable[[Tensor], object],
        log_sigma_init: Callable[[Tensor], object],
        sigma_range: tuple[float, float] = (0.0, torch.inf),
    ) -> None:
        super().__init__()
        per_slot = options.slot_init == "per_slot"
        self.kind, self.slots = options.slot_noise, slots
        self.sigma_range = (sigma_range[0], min(sigma_range[1], PER_SLOT_SIGMA)) if per_slot else sigma_range
        self.slot_mu = nn.Parameter(torch.empty(slots, width) if per_slot else torch.empty(width))
        self.slot_log_sigma = nn.Parameter(torch.empty(width))
        # own means must lie further apart than the noise of at most 0.1, or they carry no identity
        (nn.init.normal_ if per_slot else init)(self.slot_mu)
        log_sigma_init(self.slot_log_sigma)
        self.register_buffer("noise", torch.randn(slots, width, generator=generator))
        self.persist = options.slot_persist
        if self.persist:
            self.register_buffer("persisted", torch.zeros(num_classes, slots, width))
            self.register_buffer("has_persisted", torch.zeros(num_classes, dtype=torch.bool))

    def forward(self, rows: int, generator: torch.Generator | None, classes: Tensor | None) -> Tensor:
        """First slots [rows, S, W]; `classes` [rows] chooses persistent ones (None: none)."""
        mu, noise = self.slot_mu, self.noise.to(self.slot_mu.dtype)
        if self.kind == "sample" and self.training:
            noise = torch.randn(rows, *noise.shape, generator=generator, dtype=mu.dtype, device=mu.device)
        start = mu.expand_as(noise)
        if self.kind != "mean":
            low, high = self.sigma_range
            start = start + self.slot_log_sigma.exp().clamp(low, high) * noise
        start = start.expand(rows, *start.shape[-2:])
        if self.persist and classes is not None:
            known = self.has_persisted[classes][:, None, None]
            start = torch.where(known, self.persisted[classes].to(start.dtype), start)
        return start

    @torch.no_grad()
    def remember(self, slots: Tensor, seen: Tensor) -> None:
        """Move the persistent slots of the classes `seen` [C] towards `slots` [C, S, W]."""
        if not self.persist:
            return
        old = torch.where(self.has_persisted[:, None, None], self.persisted, slots.to(self.persisted.dtype))
        new = PERSIST * old + (1 - PERSIST) * slots.to(old.dtype)
        self.persisted.copy_(torch.where(seen[:, None, None], new, self.persisted))
        self.has_persisted.logical_or_(seen)


class SlotCensus(nn.Module):
    """`num_slots=auto` (SPEC 9.1): once per epoch, empty slots go and the heaviest one is split into a free place."""

    active: Tensor  # [S] bool
    peak: Tensor  # [S] largest share of the mass in this epoch
    epoch: Tensor  # 0-dim int64, -1 before the first

    def __init__(self, slots: int) -> None:
        super().__init__()
        self.register_buffer("active", torch.ones(slots, dtype=torch.bool))
        self.register_buffer("peak", torch.zeros(slots))
        self.register_buffer("epoch", torch.tensor(-1))

    def log_mask(self, dtype: torch.dtype) -> Tensor:
        """[S]: 0 for a slot in use, -inf for a pruned one; added to logits over slots."""
        return torch.zeros_like(self.peak, dtype=dtype).masked_fill(~self.active, -torch.inf)

    @torch.no_grad()
    def observe(self, share: Tensor, good: Tensor, epoch: int | None, start: SlotStart) -> None:
        """Count one training call: share [S] of the mass. A new `epoch` number first settles the old epoch."""
        if epoch is not None:
            turn = (self.epoch >= 0) & (self.epoch != epoch)
            heaviest = self.peak.argmax(dim=0, keepdim=True)
            kept = self.active & (self.peak >= PRUNE_UNDER)
            place = torch.arange(len(kept), device=kept.device)
            # the first free place, if any, takes a copy of the heaviest slot, a little beside it
            free = (place == kept.to(torch.int8).argmin()) & ~kept
            beside = start.slot_mu.index_select(0, heaviest) + PER_SLOT_SIGMA * start.noise.to(
                start.slot_mu.dtype
            )  # [S, W]
            start.slot_mu.copy_(torch.where((free & turn)[:, None], beside, start.slot_mu))
            self.active.copy_(torch.where(turn, kept | free, self.active))
            self.peak.mul_(~turn)
            self.epoch.fill_(epoch)
        seen = torch.maximum(self.peak, share.to(self.peak.dtype))
        self.peak.copy_(torch.where(good, seen, self.peak))


class SlotSurrogate(LearnedSurrogate):
    """Base of the surrogates with slots: how many there are, and which of them are in use."""

    options: SlotOptions
    auto_slots: ClassVar[int] = 8  # places when num_slots=auto

    def __init__(self, **contract: Any) -> None:
        super().__init__(**contract)
        wanted = self.options.num_slots
        self.num_slots: int = self.auto_slots if wanted == "auto" else wanted
        self.census = SlotCensus(self.num_slots) if wanted == "auto" else None

    def _start(
        self,
        width: int,
        *,
        init: Callable[[Tensor], object],
        log_sigma_init: Callable[[Tensor], object],
        sigma_range: tuple[float, float] = (0.0, torch.inf),
    ) -> SlotStart:
        """Where these slots begin, drawn from the surrogate's own stream."""
        contract = (self.num_slots, width, self.num_classes, self.options, self.noise_generator)
        return SlotStart(*contract, init=init, log_sigma_init=log_sigma_init, sigma_range=sigma_range)

    def _mask(self, like: Tensor) -> Tensor | None:
        """What to add to logits over slots [..., S], in the dtype of `like`; None where all slots are in use."""
        return None if self.census is None else self.census.log_mask(like.dtype)

    def _take_census(self, start: SlotStart, batch: Batch, terms: Terms, good: Tensor) -> None:
        """Count one training call whose `state` holds the `slot_share` [S]; nothing unless num_slots=auto."""
        if self.census is not None:
            self.census.observe(terms.state["slot_share"], good & terms.used.any(), batch.epoch, start)
