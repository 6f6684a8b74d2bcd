"""The decoder attack (SPEC 8.1; He et al. 2019): train an inverse network on one's own pictures, apply it to z̃.

The adversary queries the device with its auxiliary pictures, knows the law of the transmission's randomness and trains
on fresh transmissions in every batch. The headline (`final`) is the decoder trained on all of the adversary's pictures,
as it ended. `best_epoch` stops a decoder at the lowest error on a held-out tenth of them; it never sees that tenth,
so it is a second decoder, whose held-out error is also the curve.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import nn

from splitveil.attacks.base import Attack, Progress, Reconstruction, ThreatModel, round_of, silent
from splitveil.attacks.fitting import Fit, FitOptions, decode
from splitveil.attacks.networks import Kind, build
from splitveil.attacks.pooling import Pool, pooled
from splitveil.attacks.resuming import fit_once
from splitveil.attacks.view import View
from splitveil.models.cost import parameters


class NetworkOptions(FitOptions):
    """SPEC 8.1's decoder res_normN8C64 by default."""

    kind: Kind = Field("residual", description="how the decoder is built; `dense` and `attention` mix all positions")
    blocks: int = Field(8, ge=0, description="residual blocks after the first, N in the name N8C64")
    width: int = Field(64, ge=1, description="channels of the blocks, C in the name N8C64")

    @property
    def label(self) -> str:
        """The decoder's name in audit.json, such as residual-N8C64."""
        return f"{self.kind}-N{self.blocks}C{self.width}"

    def build(self, view: View, generator: torch.Generator) -> nn.Module:
        """A freshly initialised decoder for what the device of `view` sends."""
        return build(
            self.kind,
            view.feature_shape,
            view.image_shape,
            blocks=self.blocks,
            width=self.width,
            generator=generator,
        )


class DecoderOptions(NetworkOptions):
    """The decoder, and what is scored."""

    best_epoch: Literal["second", "shared", "off"] = Field(
        "second",
        description="`best_epoch` comes from a second decoder; or one decoder, which never sees the held-out pictures, "
        "gives both answers in half the time; or it is left out",
    )


class DecoderAttack(Attack):
    """See the module docstring."""

    name = "decoder"
    threat_model = ThreatModel(features=True, queries=True, auxiliary=True)
    Options = DecoderOptions
    options: DecoderOptions

    def run(self, view: View, progress: Progress = silent) -> Reconstruction:
        return self.attack(view, view.taming(view.sent), progress)

    def attack(
        self, view: View, sent: torch.Tensor, progress: Progress, repeats: int = 1, pool: Pool = pooled
    ) -> Reconstruction:
        """Decode `sent`, which `view.taming` made of one transmission, or `pool` of `repeats`."""
        options, queries = self.options, view.query(view.auxiliary, tamed=True)
        queries.pool = pool
        rounds = 2 if options.best_epoch == "second" else 1

        def train(number: int, holdout: float) -> Fit:
            generator = view.generator(self.name, repeats, number)
            decoder = options.build(view, generator)
            report = round_of(progress, self.name, number, rounds)
            settings = options.model_copy(update={"holdout": holdout})
            return fit_once(
                view.memory, f"decoder {number}", decoder, queries, settings, generator, report, repeats=repeats
            )

        fitted = train(0, options.holdout if options.best_epoch == "shared" else 0.0)
        final = decode(fitted.decoder, sent)
        details = {
            "decoder": options.label,
            "decoder_parameters": parameters(fitted.decoder),
            "epochs": options.epochs,
            "auxiliary_images": len(queries),
        }
        if options.best_epoch == "off":
            return Reconstruction(images=final, curve=fitted.curve, details=details)
        watched = train(1, options.holdout) if options.best_epoch == "second" else fitted
        return Reconstruction(
            images=final,
            variants={"best_epoch": decode(watched.best(), sent)},
            curve=watched.curve,
            details={**details, "best_epoch_number": watched.best_epoch},
        )
