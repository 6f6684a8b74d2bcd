"""Sums over the samples of each class without loops, padding or host synchronisation.

Only the classes that can matter get a row: at most `limit` of them, a number known from shapes alone, so work that is
expensive per class is not done for absent classes.

Legend: B batch, C classes, A rows (active classes), D feature dim.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Segments:
    """Which row each sample belongs to. Row number A is a bin for samples that count nowhere."""

    index: Tensor  # [B], 0..A
    count: Tensor  # [A] samples per row, in the dtype of the features
    classes: Tensor | None  # [A] class of each row; None: row = class

    @property
    def rows(self) -> int:
        """A, the number of rows."""
        return self.count.shape[0]

    @property
    def counted(self) -> Tensor:
        """[B] bool: the sample belongs to a row."""
        return self.index < self.rows

    def owner(self) -> Tensor:
        """[A] class of each row."""
        return torch.arange(self.rows, device=self.index.device) if self.classes is None else self.classes

    def sum(self, values: Tensor) -> Tensor:
        """[B, ...] -> [A, ...]. Samples never mix between rows, so a non-finite value stays in its own."""
        total = values.new_zeros(self.rows + 1, *values.shape[1:])
        return total.index_add(0, self.index, values)[: self.rows]

    def max(self, values: Tensor) -> Tensor:
        """[B, ...] -> [A, ...]; -inf for an empty row."""
        index = self.index.reshape(-1, *[1] * (values.ndim - 1)).expand_as(values)
        top = values.new_full((self.rows + 1, *values.shape[1:]), -torch.inf)
        return top.scatter_reduce(0, index, values, "amax")[: self.rows]

    def take(self, per_row: Tensor) -> Tensor:
        """[A, ...] -> [B, ...]: each sample's own row. Samples that count nowhere read the last row; sums drop them."""
        return per_row.index_select(0, self.index.clamp(max=self.rows - 1))

    def of_class(self, per_class: Tensor) -> Tensor:
        """[C, ...] -> [A, ...]."""
        return per_class if self.classes is None else per_class.index_select(0, self.classes)

    def to_class(self, per_row: Tensor, num_classes: int) -> Tensor:
        """[A, ...] -> [C, ...], zero (or False) for classes without a row."""
        if self.classes is None:
            return per_row
        return per_row.new_zeros(num_classes, *per_row.shape[1:]).index_copy(0, self.classes, per_row)


def class_segments(y: Tensor, valid: Tensor, count: Tensor, limit: int) -> Segments:
    """Rows for the `limit` most frequent classes: y [B] labels, valid [B] bool, count [C] samples per class.

    At most B // m classes can have m samples, so `limit` = B // m keeps every class that reaches a minimum of m.

    >>> y = torch.tensor([2, 2, 0])
    >>> segments = class_segments(y, y >= 0, torch.tensor([1.0, 0.0, 2.0]), limit=1)
    >>> segments.classes, segments.index
    (tensor([2]), tensor([0, 0, 1]))
    """
    classes = count.shape[0]
    limit = max(1, limit)
    if limit >= classes:
        return Segments(torch.where(valid, y, classes), count, None)
    kept, chosen = count.topk(limit)  # [A]
    row_of_class = torch.full((classes,), limit, device=y.device).index_copy(
        0, chosen, torch.arange(limit, device=y.device)
    )
    return Segments(torch.where(valid, row_of_class[y], limit), kept, chosen)
