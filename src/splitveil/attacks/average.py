"""Average n transmissions of the same picture, then decode: additive noise of variance σ² acts like σ²/n.

Where values are left out at random (dropout with probability p), each is averaged over the transmissions in which it
arrived: after n only p^n of them are missing. Where one of few fixed terms is added (`shredder`), the terms are found
out by trial, those of a picture are told from the differences of its transmissions, and nothing is left of them. The
decoder is trained on transmissions pooled the same way, so it knows how little noise is left. Where transmissions do
not differ there is nothing to average, and the answer is that of the plain decoder.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch
from pydantic import Field

from splitveil.attacks.base import Progress, Reconstruction, ThreatModel, silent
from splitveil.attacks.decoder import DecoderAttack, DecoderOptions
from splitveil.attacks.law import law_of
from splitveil.attacks.pooling import Pool, pooled, without_term
from splitveil.attacks.taming import Taming
from splitveil.attacks.view import View


class AverageOptions(DecoderOptions):
    """`repeats` is n."""

    repeats: int = Field(16, ge=2, description="transmissions of each picture that are averaged, n")


class AverageAttack(DecoderAttack):
    """See the module docstring."""

    name = "average"
    threat_model = ThreatModel(features=True, repeats=True, queries=True, auxiliary=True)
    Options = AverageOptions
    options: AverageOptions

    def run(self, view: View, progress: Progress = silent) -> Reconstruction:
        repeats = self.options.repeats
        first = view.send_again()
        if torch.equal(view.sent, first):
            decoded = view.reconstruction("decoder")
            made = decoded or self.attack(view, view.taming(view.sent), progress)
            return Reconstruction(
                made.images, made.variants, made.curve, {**made.details, "repeats": 1, "note": "nothing to average"}
            )
        random = view.generator(self.name, "law")
        # any feature will do that has no 0 of its own
        probe = 0.5 + torch.rand((1, *view.feature_shape), generator=random, device=view.device)
        law = law_of(view.transmit, probe, random)
        # where nothing is random after the edge half, all of it is inside: look at what was sent
        erased = law.erases or (law.variance == 0 and leaves_out(view.sent, first))
        known: dict[str, Any] = {} if law.terms is None else {"known_terms": len(law.terms)}
        pool = _pool(erased, law.terms, view.taming)
        sent = pool(chain((view.sent, first), (view.send_again() for _ in range(repeats - 2))))
        made = self.attack(view, sent, progress, repeats=repeats, pool=pool)
        return Reconstruction(made.images, made.variants, made.curve, {**made.details, "repeats": repeats, **known})


def _pool(erased: bool, terms: torch.Tensor | None, tame: Taming) -> Pool:
    """How many become one: zeros and fixed terms are told as they were sent, and outliers must not reach a mean."""
    if terms is not None:
        return lambda sent: tame(without_term(sent, terms=terms))
    if erased:
        return lambda sent: tame(pooled(sent, erased=True))
    return lambda sent: pooled(map(tame, sent))


def leaves_out(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether values arrive in one of two transmissions of the same pictures and are exactly 0 in the other.

    >>> leaves_out(torch.tensor([2.0, 0.0, 0.0]), torch.tensor([2.0, 3.0, 0.0]))
    True
    """
    share = ((one == 0) != (other == 0)).float().mean()
    return bool(share > 0.01)  # less than that is no habit: averaging as usual loses nothing then
