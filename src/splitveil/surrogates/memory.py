"""Ring buffer of past features per class (SPEC 0.5), so that classes with one or two samples per batch have a spread.

Legend: B batch, C classes, A rows (active classes), n places per class, W width of a field.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from splitveil.functional.segments import Segments


class FeatureMemory(nn.Module):
    """The last n detached float32 vectors of each class, for one or more fields ("x" and what is derived from it).

    With several processes a surrogate is given the global batch, so the memory is the same in each of them.

    Every field is one buffer [C·n + 1, W]; the last row takes what is masked out, so that shapes never depend on data.
    It is cleared at once: what it held must not show in a state dict, and a masked call must leave no trace (SPEC 0.5).
    """

    appended: Tensor  # [C] int64, samples ever seen per class

    def __init__(self, num_classes: int, size: int, fields: Mapping[str, int]) -> None:
        super().__init__()
        self.num_classes, self.size, self.fields = num_classes, size, tuple(fields)
        for name, width in fields.items():
            self.register_buffer(name, torch.zeros(num_classes * size + 1, width))
        self.register_buffer("appended", torch.zeros(num_classes, dtype=torch.long))

    def count(self) -> Tensor:
        """Filled places per class, [C] int64."""
        return self.appended.clamp(max=self.size)

    def filled(self, segments: Segments) -> Tensor:
        """Which places hold a sample, [A, n] bool."""
        return torch.arange(self.size, device=self.appended.device) < segments.of_class(self.count())[:, None]

    def read(self, name: str, segments: Segments, dtype: torch.dtype) -> Tensor:
        """Past vectors [A, n, W] of one field; empty places are 0. A view where possible: use it without gradient."""
        rows = self.get_buffer(name)[:-1].view(self.num_classes, self.size, -1)
        return segments.of_class(rows).to(dtype)

    @torch.no_grad()
    def append(self, values: Mapping[str, Tensor], y: Tensor, keep: Tensor) -> None:
        """Add one batch: values {field: [B, W]}, y [B] labels, keep [B] bool. The last n of a class stay."""
        same = (y[:, None] == y[None, :]) & keep[None, :]  # [B, B]
        earlier = same.tril(-1).sum(dim=1)
        later = same.triu(1).sum(dim=1)
        place = y * self.size + (self.appended[y] + earlier) % self.size
        index = torch.where(keep & (later < self.size), place, self.num_classes * self.size)
        for name in self.fields:
            buffer = self.get_buffer(name)
            buffer.index_copy_(0, index, values[name].detach().to(buffer.dtype))
            buffer[-1].zero_()
        self.appended.index_add_(0, y, keep.to(self.appended.dtype))
