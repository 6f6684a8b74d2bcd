"""Nearest neighbour in feature space: answer with the own pictures whose transmissions look most alike.

x̂ is the mean of the k nearest auxiliary pictures, k chosen on the attacker's own pictures (each looked up among the
others). Needs no training; what it finds shows whether features cluster by content.
"""

from __future__ import annotations

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from splitveil.attacks.base import Attack, Progress, Reconstruction, ThreatModel, silent
from splitveil.attacks.queries import CHUNK
from splitveil.attacks.view import View
from splitveil.core.options import Options as AnyOptions
from splitveil.data.augment import to_float

PROBES = 500  # own pictures on which k is chosen


class RetrievalOptions(AnyOptions):
    """Numbers of neighbours to choose from."""

    neighbours: tuple[PositiveInt, ...] = Field(
        (1, 3, 10),
        min_length=1,
        description="how many nearest pictures may be averaged; the best number is chosen on own pictures",
    )


class RetrievalAttack(Attack):
    """See the module docstring."""

    name = "retrieval"
    threat_model = ThreatModel(features=True, queries=True, auxiliary=True)
    Options = RetrievalOptions
    options: RetrievalOptions

    def run(self, view: View, progress: Progress = silent) -> Reconstruction:
        generator = view.generator(self.name)
        queries, own = view.query(view.auxiliary, tamed=True), view.auxiliary
        places = torch.arange(len(own), device=view.device).split(CHUNK)
        sent = torch.cat([queries.batch(index, generator)[0].flatten(1) for index in places])  # [M, D]
        choices = [k for k in self.options.neighbours if k < len(own)] or [1]
        probe = torch.randperm(len(own), generator=generator, device=view.device)[:PROBES]
        near = _nearest(sent[probe], sent, max(choices) + 1, own=probe)
        truth = to_float(own[probe])
        errors = [float((_blend(own, near[:, :k]) - truth).square().mean()) for k in choices]
        best = choices[errors.index(min(errors))]
        found = _nearest(view.taming(view.sent).flatten(1), sent, best)
        images = torch.cat([_blend(own, piece) for piece in found.split(CHUNK)])
        progress(self.name, 1, 1)
        return Reconstruction(images, details={"neighbours": best})


def _nearest(queries: Tensor, bank: Tensor, count: int, own: Tensor | None = None) -> Tensor:
    """Places [N, count] of the nearest rows of the bank; with `own` [N], a row never finds itself."""
    found = []
    for start in range(0, len(queries), CHUNK):
        piece = slice(start, start + CHUNK)
        distance = torch.cdist(queries[piece], bank)
        if own is not None:
            distance.scatter_(1, own[piece, None], torch.inf)
        found.append(distance.topk(min(count, len(bank)), largest=False).indices)
    return torch.cat(found)


def _blend(own: Tensor, places: Tensor) -> Tensor:
    """Mean picture of each row of places [N, k]."""
    return to_float(own[places.flatten()]).unflatten(0, tuple(places.shape)).mean(1)
