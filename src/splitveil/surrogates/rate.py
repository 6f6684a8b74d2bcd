"""`rate`: what one Gaussian with the pooled within-class covariance leaks through the noise.

    loss = 1/(2D) · log det(I + S_w/σ²),   S_w = Σ_c p_c·Cov(x | class c)

**Direction.** With population covariances D·loss is an *upper* bound: given the class, z̃ = x + σε carries
I(z̃; x | y) = Σ_c p_c·(h(z̃|c) − h(ε)) nats; a Gaussian has the largest entropy of all laws with its covariance, so
this is at most Σ_c p_c·½·log det(I + Σ_c/σ²); and log det is concave, so pooling the covariances only raises it. Hence
also H(z̃|y) ≤ D·loss + (D/2)·log(2πeσ²) and, the label being log C nats at most, I(z̃; x) ≤ D·loss + log C. The first
two become equalities for Gaussian classes with one common covariance. On a batch the loss estimates that bound; it is
no certificate. With `rate_sigma` above σ it is smaller, and bounds what noise of that level would let through.

Unlike `gmm` it needs no epoch statistics, sees correlations between dimensions, and its gradient is not diluted by the
size of the data set. Legend: B batch, C classes, D feature dim.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from splitveil.functional.classes import safe_divide
from splitveil.functional.gaussian import gram_logdet
from splitveil.functional.hinge import noise_power
from splitveil.surrogates.base import Batch, Surrogate, SurrogateOptions, Terms


class RateOptions(SurrogateOptions):
    """Options of `rate`; the defaults are the plain formula."""

    name: Literal["rate"] = "rate"
    memory: int = Field(0, ge=0, description="past samples per class whose mean joins the class mean; 0: batch only")
    unbiased: bool = Field(False, description="factor n/(n-1) per class; classes of one known sample are left out")
    class_weight: Literal["share", "equal"] = Field("share", description="classes by frequency, or all alike")


class Rate(Surrogate):
    """Pooled within-class Gaussian rate through the smaller Gram matrix (B×B when B < D).

    `memory` = n keeps one running mean per class with the weight of its last n samples (detached, [C, D]), so that a
    class with one sample in the batch still has a spread. Contributions per class divide the loss by their share of
    the total squared deviation: a determinant has no unique split.
    """

    Options = RateOptions
    MODES: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "faithful": {},
        "corrected": {"memory": 64, "unbiased": True},
    }
    options: RateOptions
    past_mean: Tensor | None
    past_count: Tensor | None

    def __init__(self, **contract: Any) -> None:
        super().__init__(**contract)
        on = self.options.memory > 0
        self.register_buffer("past_mean", torch.zeros(self.num_classes, self.dim) if on else None)
        self.register_buffer("past_count", torch.zeros(self.num_classes) if on else None)

    def _terms(self, batch: Batch) -> Terms:
        batch_total = batch.member @ batch.x  # [C, D]
        total, known = batch_total, batch.count  # [C, D], [C]
        if self.past_mean is not None and self.past_count is not None:
            past = self.past_count.to(batch.x.dtype)
            total, known = total + past[:, None] * self.past_mean.to(batch.x.dtype), known + past
        mean = total / known.clamp(min=1.0)[:, None]
        deviation = batch.x - mean.index_select(0, batch.y)  # [B, D]
        used = (batch.count > 0) & (known > (1 if self.options.unbiased else 0))
        # S_w = Σ_c p_c·Cov_c over used classes, whose p_c sum to 1, as a weight per sample
        weight = torch.where(used, safe_divide(self._class_share(batch, used), batch.count), 0.0)  # [C]
        if self.options.unbiased:
            weight = weight * safe_divide(known, known - 1.0)
        sample_weight = weight @ batch.member  # [B]
        scaled = deviation * (sample_weight / noise_power(self.options.rate_level(self.sigma))).sqrt()[:, None]
        rate = gram_logdet(scaled) / (2 * self.dim)
        square = deviation.detach().square().mean(dim=1)  # [B]
        energy = batch.member @ (square * sample_weight)  # [C]
        even = safe_divide(used.to(energy.dtype), used.sum())
        portion = torch.where(energy.sum() > 0, safe_divide(energy, energy.sum()), even)
        intra = torch.where(used, batch.member @ square, 0.0).sum() / max(len(batch.y), 1)
        diagnostics = {"var_mean": energy.sum(), "base_mean": rate}
        state = {"total": batch_total.detach()}
        return Terms(rate * portion, torch.ones_like(weight), used, False, intra, diagnostics=diagnostics, state=state)

    def _class_share(self, batch: Batch, used: Tensor) -> Tensor:
        if self.options.class_weight == "equal":
            return used.to(batch.x.dtype) / used.sum().clamp(min=1)
        return safe_divide(batch.count, torch.where(used, batch.count, 0.0).sum())

    def _commit(self, batch: Batch, terms: Terms, good: Tensor) -> None:
        """The mean of the last n samples of each class; a class with features too large to square is not remembered."""
        if self.past_mean is None or self.past_count is None:
            return
        count = torch.where(good & batch.sound, batch.count, 0.0).to(self.past_count.dtype)
        kept = torch.minimum(self.past_count, (self.options.memory - count).clamp(min=0.0))
        mean = (terms.state["total"] / batch.count.clamp(min=1.0)[:, None]).to(self.past_mean.dtype)
        self.past_mean.lerp_(mean, safe_divide(count, kept + count)[:, None])  # weight 0 for an absent class
        self.past_count.copy_(torch.where(count > 0, (kept + count).clamp(max=self.options.memory), self.past_count))
