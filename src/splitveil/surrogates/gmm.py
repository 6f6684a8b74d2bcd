"""`gmm`: a Gaussian mixture per class, fitted once per epoch, whose components must shrink (SPEC 1).

bank of components -> hard assignment within the own class -> variance of the batch mixed with the stored one (eq. 6)
-> a cost per component -> weighted sum. Legend: B batch, C classes, K clusters, D feature dim.

Every quantity of a component is kept once per *sample* of it (rows [B], not [C·K]), so the cost does not grow with C.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from splitveil.functional.forms import COVARIANCE, DEFAULT_GAMMA, ComponentCost
from splitveil.functional.gaussian import component_logdet
from splitveil.functional.graph import scale_gradient
from splitveil.functional.groups import group_rows
from splitveil.functional.hinge import noise_power
from splitveil.functional.moments import cluster_logdet
from splitveil.surrogates.bank import Bank, FitOptions, class_weights, collect
from splitveil.surrogates.base import Batch, Preset, Surrogate, Terms
from splitveil.surrogates.gmm_options import ALIGNED, CORRECTED, PAPER, GmmOptions
from splitveil.surrogates.released import padded_lists, statistics_class
from splitveil.surrogates.streaming import BatchStep, follow


@dataclass(frozen=True)
class _Rows:
    """One row per sample: where its component stands in the bank and in the batch."""

    usable: Tensor  # [B] bool: valid label, fitted class
    cluster: Tensor  # [B] k*
    own: Tensor  # [B] component c·K + k*
    read: Tensor  # [B] component whose stored variance is read (differs from `own` under the released bug)
    weight: Tensor  # [B] π that is read
    distance: Tensor  # [B] = ‖x − μ‖, no gradient
    diff: Tensor  # [B, D] = x − μ
    same: Tensor  # [B, B] = 1 for two samples of one component; an unusable sample is alone
    count: Tensor  # [B] n_j
    first: Tensor  # [B] = 1 for one sample of each component: sums over components are sums over these rows
    rho: Tensor  # [B] ρ_j


class Gmm(Surrogate):
    """Conditional entropy by a Gaussian mixture per class; call `refresh` once per epoch (SPEC 1).

    Before the first `refresh` the loss is a connected 0 and `diagnostics["no_bank"]` is 1.
    """

    Options = GmmOptions
    MODES: ClassVar[Mapping[str, Mapping[str, Any]]] = {"faithful": {}, "corrected": CORRECTED}
    PRESETS: ClassVar[Mapping[str, Preset]] = {
        "gmm.released": Preset("faithful"),
        "gmm.intended": Preset("faithful", ALIGNED),
        "gmm.paper": Preset("faithful", {**PAPER, "form": "gauss_full", "persist": "on"}),
        "gmm.diag": Preset("faithful", {**PAPER, "form": "gauss_diag"}),
    }
    refresh_needed = True
    options: GmmOptions
    stored_cost: Tensor
    refreshes: Tensor
    mutual_information: Tensor

    def __init__(self, **contract: Any) -> None:
        super().__init__(**contract)
        options = self.options
        gamma = options.gamma if options.gamma is not None else DEFAULT_GAMMA.get(options.form, 0.01)
        noise = options.rate_level(self.sigma) if options.form.startswith("gauss") else self.sigma
        self.cost = ComponentCost(options.form, noise, options.var_threshold, gamma, self.dim, options.per_dim)
        self.bank = Bank(self.num_classes, options.clusters, self.dim, COVARIANCE[options.form])
        # cost of each component from its stored statistics: what absent components add; remade after loading
        self.register_buffer("stored_cost", torch.zeros(self.num_classes, options.clusters), persistent=False)
        self.register_buffer("refreshes", torch.zeros((), dtype=torch.long))
        self.register_buffer("mutual_information", torch.zeros(()))
        self.register_load_state_dict_post_hook(Gmm._loaded)

    @torch.no_grad()
    def refresh(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Fit the bank to clean features (z, y), encoder in eval mode (SPEC 1.2). Nothing changes if none is usable."""
        options = self.options
        if options.refit == "never" and self.bank.ready:
            return
        x, y = collect(batches, self._check, self.num_classes, self.bank.mean)
        if not len(x):
            warnings.warn("refresh got no usable features; the bank stays as it was.", RuntimeWarning, stacklevel=2)
            return
        if x.dtype is torch.float64:
            self.double()  # float64 input stays float64 throughout (SPEC 0.4)
        fit = FitOptions(options.fit, options.init_power, options.max_steps, options.em_steps)
        with torch.autocast(x.device.type, enabled=False):
            assignment = self.bank.fit(x, y, fit)
            self.refreshes += 1
            if options.monitor and int(self.refreshes) % options.monitor == 0:
                self.mutual_information.copy_(self._monitor(x, y, assignment))
        self._remake_cost()

    def _monitor(self, x: Tensor, y: Tensor, assignment: Tensor) -> Tensor:
        """Mean over classes of Σ_k π_k·(1/D)·log det(Σ_ck + σ²I) (SPEC 1.6); trains nothing."""
        members = group_rows(y * self.options.clusters + assignment, self.bank.mass.numel())
        logdet = cluster_logdet(x, members, self.bank.mean.flatten(0, 1).to(x.dtype), noise_power(self.sigma))
        per_class = (class_weights(self.bank.mass) * logdet.reshape(self.bank.mass.shape)).sum(dim=1) / self.dim
        return per_class.sum() / self.bank.fitted.sum()

    def _terms(self, batch: Batch) -> Terms:
        self.bank.warn_unfitted("gmm", stacklevel=3)
        rows = self._rows(batch)
        statistic, variance = self._statistic(rows)
        cost = self.cost.cost(statistic).to(batch.x.dtype)  # [B] form_j
        # intra_mse: Σ_c p_c·mean distance to the assigned centroid, which is a plain mean over samples (SPEC 1.6)
        intra = torch.where(rows.usable, rows.distance.square(), 0.0).sum() / (self.dim * max(len(batch.y), 1))
        columns = torch.arange(self.options.clusters, device=batch.x.device)
        chosen = ((rows.cluster[:, None] == columns) & rows.usable[:, None]).to(batch.x.dtype)  # [B, K]
        count = batch.member @ chosen  # [C, K]
        present = (batch.count > 0) & self.bank.fitted
        if self.options.aggregation == "paper":
            terms = self._paper(batch, rows, cost, count)
            used, weight, normalise = self.bank.fitted, torch.ones_like(batch.share), False
        else:
            # (1/#present classes)·Σ_c Σ_{k present} π_ck·form_ck
            terms = batch.member @ (rows.first * rows.weight * cost)
            weight = batch.share if self.options.class_weight == "share" else torch.ones_like(batch.share)
            used, normalise = present, True
        components = rows.first.sum().clamp(min=1.0)
        # absent classes add a constant under aggregation paper: part of the loss, but not used (SPEC 0.3)
        counted = present & torch.isfinite(terms)
        diagnostics = {
            "class_used": counted,
            "per_class_loss": torch.where(counted, terms, 0.0),
            "slot_mass": count,
            "resp": chosen,
            "var_mean": (rows.first @ variance).mean() / components,
            "base_mean": rows.first @ cost.detach() / components,
            "no_bank": ~self.bank.fitted.any(),
        }
        if self.options.monitor:
            diagnostics["mutual_information"] = self.mutual_information
        state = self._observed(batch, rows, count, variance) if self.training else {}
        return Terms(terms, weight, used, normalise, intra, diagnostics=diagnostics, state=state)

    def _rows(self, batch: Batch) -> _Rows:
        bank, clusters = self.bank, self.options.clusters
        x, y = batch.x, batch.y
        usable = batch.valid & batch.sound[y] & bank.fitted[y]
        with torch.no_grad():  # k* = argmin_k ‖x − μ‖, no gradient through the choice
            centers = bank.mean.index_select(0, y).to(x.dtype)  # [B, K, D]
            # differences, not expanded squares: exact far from the origin, and equal centroids tie (the first wins)
            distances = torch.cdist(x[:, None], centers, compute_mode="donot_use_mm_for_euclid_dist")[:, 0]  # [B, K]
            distance, cluster = distances.min(dim=1)
        own = y * clusters + cluster
        center = bank.mean.flatten(0, 1).index_select(0, own).to(x.dtype)  # [B, D]
        order = torch.arange(len(y), device=y.device)
        place = torch.where(usable, own, -1 - order)  # a number of its own for an unusable sample: it is alone
        same = (place[:, None] == place[None, :]).to(x.dtype)
        count = same.sum(dim=1)
        first = ((same.tril(-1).sum(dim=1) == 0) & usable).to(x.dtype)
        paper = self.options.aggregation == "paper"
        mass, size = bank.mass.to(x.dtype), bank.size.to(x.dtype)
        weights = mass / size.clamp(min=1.0) if paper else class_weights(mass)  # [C, K] π
        source, columns = y, None  # the class whose statistics are read: the own one, but for the released faults
        if self.options.stats_index == "sample":
            source = statistics_class(batch.member, y, batch.count)[y]  # [B]
        read = source * clusters + cluster
        if self.options.align == "padded":
            weights, columns = padded_lists(weights, mass)
        weight = weights.flatten()[read]
        if columns is not None:
            read = source * clusters + columns.flatten()[read]
        # ρ_j = min(ρ_max, κ·n_j/(π_j·N)), N = `size` of the data set (paper) or of the class.
        # π_j = 0 has no past, so the batch counts as much as it may
        if not paper:
            size = mass.sum(dim=1)[y] if self.options.class_size == "counted" else size / self.num_classes
        rho = (self.options.kappa * count / (weight * size)).clamp(max=self.options.rho_max)  # count >= 1: never 0/0
        return _Rows(usable, cluster, own, read, weight, distance, x - center, same, count, first, rho)

    def _statistic(self, rows: _Rows) -> tuple[Tensor, Tensor]:
        """v_j [B], s_j [B, D] or log det(I + Σ_j/floor) [B] by form, and the variance for monitors [B, 1|D]."""
        bank, rho = self.bank, rows.rho[:, None]
        square = rows.diff.square()
        if bank.diagonal is None:
            square, stored = square.mean(dim=1, keepdim=True), bank.variance.reshape(-1, 1)
        else:
            stored = bank.diagonal.flatten(0, 1)
        # eq. 6: v_j = ρ_j·v_b + (1−ρ_j)·sg[v̄_j]
        stored = (1.0 - rho) * stored.index_select(0, rows.read).to(square.dtype)
        fresh = (rows.same * (rho / rows.count[:, None])) @ square  # [B, 1|D]
        if self.options.gradient == "batch" and bank.basis is None:
            # ρ ≈ B/N would make the penalty's pull fade with the size of the data set, unlike the task's mean over a
            # batch; the value keeps eq. 6's long average, the gradient is that of v_b
            fresh = scale_gradient(fresh, torch.where(rho > 0, 1.0 / rho, 0.0))
        variance = fresh + stored
        if bank.basis is None or bank.eigen is None:
            return (variance[:, 0] if bank.diagonal is None else variance), variance.detach()
        basis = bank.basis.flatten(0, 1).index_select(0, rows.read).to(square.dtype)
        eigen = bank.eigen.flatten(0, 1).index_select(0, rows.read)
        floor = self.cost.floor
        logdet, failed = component_logdet(rows.diff, basis, eigen, rows.rho, rows.count, rows.same, floor)
        # fallback on Cholesky failure: Σ_d log(diag + 1e-5), SPEC 1.4
        fallback = ((variance.double() + floor + 1e-5) / floor).log().sum(dim=1)
        return torch.where(failed, fallback, logdet), variance.detach()

    def _paper(self, batch: Batch, rows: _Rows, cost: Tensor, count: Tensor) -> Tensor:
        """Σ_k π_ck·(−log π_ck + form_ck) of each class, [C], over all components; absent ones are constants."""
        weights = self._updated_mass(count, len(batch.y)) / self.bank.size.clamp(min=1.0)  # [C, K] π_j
        weights = weights.to(cost.dtype)
        if self.options.class_weight == "equal":
            weights = class_weights(weights) / self.bank.fitted.sum().clamp(min=1)
        constant = torch.where(count > 0, 0.0, weights * self.stored_cost.to(cost.dtype))
        per_class = (constant - torch.special.xlogy(weights, weights)).sum(dim=1)
        own = weights.flatten()[rows.own]
        return per_class + batch.member @ (rows.first * own * cost)

    def _updated_mass(self, count: Tensor, batch_size: int) -> Tensor:
        """Eq. 5 in numbers of samples: π_j·N ← π_j·(N−N_b) + n_j."""
        mass, size = self.bank.mass.to(count.dtype), self.bank.size.to(count.dtype)
        if not self.options.update_weights:
            return mass
        share = batch_size / size.clamp(min=1.0)
        # a batch larger than the data of the last refresh replaces the weights; it must not make them negative
        return mass * (1.0 - share).clamp(min=0.0) + count / share.clamp(min=1.0)

    def _observed(self, batch: Batch, rows: _Rows, count: Tensor, variance: Tensor) -> dict[str, Tensor]:
        """What the bank learns from the batch, if it learns from batches."""
        if self.options.persist == "off":
            return {}
        step = BatchStep(rows.own, rows.first, rows.same, rows.count, rows.rho, rows.diff.detach(), variance)
        return {**vars(step), "mass": self._updated_mass(count, len(batch.y))}

    def _commit(self, batch: Batch, terms: Terms, good: Tensor) -> None:
        """Eq. 5-6 applied cumulatively: the bank follows the batches."""
        if not terms.state:
            return
        state = dict(terms.state)
        mass = state.pop("mass")
        moving, full = self.options.refit == "never", self.options.persist == "full"
        follow(self.bank, BatchStep(**state), mass, good, move_means=moving, full=full)
        self._remake_cost()

    @torch.no_grad()
    def _remake_cost(self) -> None:
        bank = self.bank
        self.stored_cost.copy_(self.cost.stored_cost(bank.variance, bank.diagonal, bank.eigen))

    @staticmethod
    def _loaded(module: Any, _: Any) -> None:
        module._remake_cost()
