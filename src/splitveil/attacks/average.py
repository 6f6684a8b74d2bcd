"""Average n transmissions of the same picture, then decode: additive noise of variance σ² acts like σ²/n.

The decoder is trained on means of n transmissions too, so it knows how little noise is left. Where transmissions do not
differ there is nothing to average, and the answer is that of the plain decoder.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field

from splitveil.attacks.base import Progress, Reconstruction, ThreatModel, silent
from splitveil.attacks.decoder import DecoderAttack, DecoderOptions
from splitveil.attacks.view import View
from splitveil.core.options import Options as AnyOptions


class AverageOptions(DecoderOptions):
    """`repeats` is n."""

    repeats: int = Field(16, ge=2, description="transmissions of each picture that are averaged, n")


class AverageAttack(DecoderAttack):
    """See the module docstring."""

    name = "average"
    threat_model = ThreatModel(features=True, repeats=True, queries=True, auxiliary=True)
    Options: ClassVar[type[AnyOptions]] = AverageOptions
    options: AverageOptions

    def run(self, view: View, progress: Progress = silent) -> Reconstruction:
        repeats = self.options.repeats
        first = view.send_again()
        total, differ = view.sent + first, not torch.equal(view.sent, first)
        if not differ:
            decoded = view.reconstruction("decoder")
            made = decoded or self.attack(view, view.sent, progress)
            return Reconstruction(
                made.images, made.variants, made.curve, {**made.details, "repeats": 1, "note": "nothing to average"}
            )
        for _ in range(repeats - 2):
            total = total + view.send_again()
        made = self.attack(view, total / repeats, progress, repeats=repeats)
        return Reconstruction(made.images, made.variants, made.curve, {**made.details, "repeats": repeats})
