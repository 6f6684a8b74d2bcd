"""Start at a decoder's answer and refine it with the white-box search of `optimize`.

The prior is the decoder itself: besides matching the feature, the picture is held near where the decoder put it, which
is where most pictures are.
"""

from __future__ import annotations

from pydantic import Field

from splitveil.attacks.base import Progress, Reconstruction, ThreatModel, silent
from splitveil.attacks.decoder import DecoderAttack, DecoderOptions
from splitveil.attacks.optimize import OptimizeAttack, OptimizeOptions
from splitveil.attacks.view import View


class RefineOptions(OptimizeOptions):
    """A shorter search with smaller steps than from nothing."""

    steps: int = Field(200, ge=1, description="gradient steps of each search")
    lr: float = Field(0.02, gt=0, description="rate of Adam at the start of its cosine schedule")
    restarts: int = Field(
        1, ge=1, description="searches from different starts; each picture keeps the one that fits best"
    )


class RefineAttack(OptimizeAttack):
    """See the module docstring."""

    name = "refine"
    threat_model = ThreatModel(features=True, queries=True, weights=True, auxiliary=True)
    Options = RefineOptions

    def run(self, view: View, progress: Progress = silent) -> Reconstruction:
        source = "decoder_strong"
        start = view.reconstruction(source)
        if start is None:
            source = "decoder"
            start = view.reconstruction(source) or DecoderAttack(DecoderOptions()).run(view, progress)
        sent = view.sent[: self.options.num_images]
        error = start.curve[-1][1] if start.curve else 0.0  # what the decoder's own held-out pictures said
        found = self.search(view, sent, progress, start.images[: len(sent)], error)
        return Reconstruction(found.images, found.variants, found.curve, {**found.details, "started_from": source})
