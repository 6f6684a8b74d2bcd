"""Samples sorted into groups (classes, components), so that one batched matrix product serves all groups at once.

The rows of group g are listed in `index[g]`, padded to the size of the largest group. Memory of the padded copies is
bounded by reading a few columns at a time. For epoch statistics only: the padded width is read back to the host.

Legend: N samples, G groups, R rows of the largest group, D feature dim.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

CHUNK_ELEMENTS = 2**23  # numbers in one padded copy: 32 MiB of float32


@dataclass(frozen=True)
class Groups:
    """Which samples belong to which group."""

    index: Tensor  # [G, R] sample numbers; entries beyond the group's size repeat some valid number
    mask: Tensor  # [G, R] bool
    count: Tensor  # [G] int64
    row: Tensor  # [N] position of each sample within its own group
    group: Tensor  # [N] group of each sample

    def chunks(self, width: int) -> Iterator[slice]:
        """Slices of columns for which [G, columns, width] stays within the memory bound."""
        groups, rows = self.index.shape
        step = max(1, CHUNK_ELEMENTS // max(groups * width, 1))
        for first in range(0, rows, step):
            yield slice(first, min(first + step, rows))

    def select(self, some: slice) -> Groups:
        """A few of the groups; `row` and `group` still describe all samples."""
        return replace(self, index=self.index[some], mask=self.mask[some], count=self.count[some])

    def scatter(self, values: Tensor) -> Tensor:
        """From padded [G, R, ...] back to one entry per sample [N, ...]."""
        return values[self.group, self.row]


def group_rows(group: Tensor, num_groups: int) -> Groups:
    """Sort samples into groups: `group` [N] with entries 0..G-1.

    >>> groups = group_rows(torch.tensor([1, 0, 1]), 3)
    >>> groups.count.tolist(), groups.index[1].tolist()
    ([1, 2, 0], [0, 2])
    """
    size = group.shape[0]
    count = torch.bincount(group, minlength=num_groups)  # [G]
    order = torch.argsort(group, stable=True)  # [N]
    start = count.cumsum(0) - count  # [G]
    rows = int(count.max()) if size else 0
    column = torch.arange(rows, device=group.device)
    index = order[(start[:, None] + column).clamp(max=max(size - 1, 0))]  # [G, R]
    row = torch.empty_like(order)
    row[order] = torch.arange(size, device=group.device) - start[group[order]]
    return Groups(index, column < count[:, None], count, row, group)


def group_mean(x: Tensor, groups: Groups) -> Tensor:
    """Mean of each group, [G, D]; zeros for an empty one."""
    total = x.new_zeros(groups.count.shape[0], x.shape[1])
    for part in groups.chunks(x.shape[1]):
        total += (x[groups.index[:, part]] * groups.mask[:, part, None]).sum(dim=1)
    return total / groups.count.clamp(min=1)[:, None]
