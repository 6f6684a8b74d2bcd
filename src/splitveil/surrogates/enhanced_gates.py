"""The two gates at the entrance of `enhanced` (SPEC 5.1, 5.2, note N0). Legend: R rows, W width."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from splitveil.functional.classes import safe_divide, safe_root
from splitveil.functional.segments import Segments


class MultiScaleGate(nn.Module):
    """X ⊙ sigm(Lin[F_small, F_large, F_orig]) (SPEC 5.1); a scale factor of 1 is the input itself."""

    def __init__(self, width: int, scale_factors: tuple[float, ...]) -> None:
        super().__init__()
        self.scales = nn.ModuleList()
        for factor in scale_factors:
            hidden = max(1, round(factor * width))
            scale = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
            self.scales.append(nn.Identity() if factor == 1.0 else scale)
        self.gate = nn.Linear(len(scale_factors) * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """x [R, W] -> X_g [R, W]."""
        return x * torch.sigmoid(self.gate(torch.cat([scale(x) for scale in self.scales], dim=-1)))


class ComplexityGate(nn.Module):
    """One number g in [threshold, 1 − threshold] from the statistics of the batch (SPEC 5.2)."""

    def __init__(self, width: int, threshold: float, axis: str, dynamic_weight: float) -> None:
        super().__init__()
        self.threshold, self.axis, self.quarter = threshold, axis, width // 4
        self.first = nn.Linear(width, width // 2)
        self.norm = nn.LayerNorm(width // 2)
        self.second = nn.Linear(width // 2, width // 4)
        self.third = nn.Linear(width // 4, 1)
        self.dynamic_weight = nn.Parameter(torch.tensor(float(dynamic_weight)))

    def forward(self, x: Tensor, classes: Segments) -> Tensor:
        """x [R, W], rows by class -> g, 0-dim. Rows of no class (a label out of range) count nowhere (SPEC 0.3)."""
        if not len(x):
            return x.new_full((), 0.5)  # an empty batch has no statistics, and nothing that a gate could scale
        weight = classes.counted.to(x.dtype)[:, None]
        complexity = self._per_row(x, weight) if self.axis == "coordinates" else self._per_class(x, classes)
        mean = safe_divide((weight * x).sum(0), weight.sum())
        var = safe_divide((weight * (x - mean).square()).sum(0), weight.sum() - 1)  # unbiased; 0 for a single row
        part = slice(0, self.quarter)
        summary = torch.cat([complexity.expand(self.quarter), mean[part], safe_root(var)[part], var[part]])
        hidden = F.gelu(self.second(self.norm(F.gelu(self.first(summary)))))
        raw = torch.sigmoid(self.third(hidden))[0]  # g₀
        share = torch.sigmoid(self.dynamic_weight)  # δ
        return (share * raw + (1 - share) * 0.5).clamp(self.threshold, 1 - self.threshold)

    @staticmethod
    def _per_row(x: Tensor, weight: Tensor) -> Tensor:
        """(C_var + C_std + C_range)/3, each the mean over rows of a statistic over coordinates."""
        var = x.var(dim=1) if x.shape[1] > 1 else torch.zeros_like(x[:, 0])
        extent = x.amax(dim=1) - x.amin(dim=1)
        return safe_divide((weight[:, 0] * (var + safe_root(var) + extent)).sum(), weight.sum()) / 3

    @staticmethod
    def _per_class(x: Tensor, classes: Segments) -> Tensor:
        """The same over the samples of a class, per dimension, weighted by class size (prototype)."""
        count = classes.count[:, None]
        mean = safe_divide(classes.sum(x), count)
        var = safe_divide(classes.sum((x - classes.take(mean)).square()), count - 1)  # unbiased; 0 for one sample
        extent = torch.where(count > 0, classes.max(x) + classes.max(-x), 0.0)
        per_class = (var + safe_root(var) + extent).mean(dim=1) / 3
        return safe_divide((classes.count * per_class).sum(), classes.count.sum())
