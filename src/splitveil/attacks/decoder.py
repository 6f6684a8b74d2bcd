"""The decoder attack (SPEC 8.1; He et al. 2019): train an inverse network on one's own pictures, apply it to z̃.

The adversary queries the device with its auxiliary pictures, knows the law of the transmission's randomness and trains
on fresh transmissions in every batch. Scored as it ended (`final`); `best_epoch` is the same decoder stopped at the
lowest error on a held-out tenth of the adversary's own pictures.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field

from splitveil.attacks.base import Attack, Progress, Reconstruction, ThreatModel, silent
from splitveil.attacks.fitting import FitOptions, decode, fit
from splitveil.attacks.networks import Kind, build
from splitveil.attacks.view import View
from splitveil.core.options import Options as AnyOptions
from splitveil.models.cost import parameters


class DecoderOptions(FitOptions):
    """SPEC 8.1's decoder res_normN8C64 by default."""

    kind: Kind = "residual"
    blocks: int = Field(8, ge=0)
    width: int = Field(64, ge=1)


class DecoderAttack(Attack):
    """See the module docstring."""

    name = "decoder"
    threat_model = ThreatModel(features=True, queries=True, auxiliary=True)
    Options: ClassVar[type[AnyOptions]] = DecoderOptions
    options: DecoderOptions

    def run(self, view: View, progress: Progress = silent) -> Reconstruction:
        return self.attack(view, view.sent, progress)

    def attack(self, view: View, sent: torch.Tensor, progress: Progress, repeats: int = 1) -> Reconstruction:
        """Decode `sent`, which holds means of `repeats` transmissions."""
        options, generator = self.options, view.generator(self.name, repeats)
        decoder = build(
            options.kind,
            view.feature_shape,
            view.image_shape,
            blocks=options.blocks,
            width=options.width,
            generator=generator,
        )
        queries = view.query(view.auxiliary)
        report = lambda done, total: progress(self.name, done, total)  # noqa: E731 - one line, used once
        fitted = fit(decoder, queries, options, generator, report, repeats=repeats)
        final = decode(fitted.decoder, sent)
        return Reconstruction(
            images=final,
            variants={"best_epoch": decode(fitted.best(), sent)},
            curve=fitted.curve,
            details={
                "decoder": f"{options.kind}-N{options.blocks}C{options.width}",
                "decoder_parameters": parameters(decoder),
                "epochs": options.epochs,
                "auxiliary_images": len(queries),
                "best_epoch_number": fitted.best_epoch,
            },
        )
