"""Tokens as rows, and the sequences they form, for `enhanced` (SPEC 5, `tokens`).

Legend: B batch, R rows, A sequences, N places of a feature map, W width.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from splitveil.functional.segments import Segments
from splitveil.surrogates.learned import BatchView


@dataclass(frozen=True)
class TokenRows:
    """Rows and who shares slots with whom."""

    rows: Tensor  # [R, W]
    sequences: Segments  # rows that share slots
    classes: Segments  # rows by class
    owner: Tensor  # [A] class of each sequence
    samples: int | None  # B where the rows are places of maps, None where they are samples

    def per_sample(self, rows: Tensor) -> Tensor:
        """Rows [R, W] back to one vector per sample, maps in (channel, row, column) order."""
        if self.samples is None:
            return rows
        return rows.unflatten(0, (self.samples, -1)).transpose(1, 2).flatten(1)


def lay_out(view: BatchView, x: Tensor, tokens: str, channels: int) -> TokenRows:
    """x [B, ·] as tokens: `class` (samples of a class form a sequence), `sample` (one each) or `spatial` (a map)."""
    segments, size = view.segments, x.shape[0]
    number = torch.arange(size, device=x.device)
    if tokens == "class":
        return TokenRows(x, segments, segments, segments.owner(), None)
    if tokens == "sample":
        return TokenRows(x, Segments(number, torch.ones_like(x[:, 0]), None), segments, view.batch.y, None)
    rows = x.unflatten(1, (channels, -1)).transpose(1, 2)  # [B, N, Cz]
    places = rows.shape[1]
    maps = Segments(number.repeat_interleave(places), rows.new_full((size,), places), None)
    classes = dataclasses.replace(
        segments, index=segments.index.repeat_interleave(places), count=segments.count * places
    )
    return TokenRows(rows.flatten(0, 1), maps, classes, view.batch.y, size)
