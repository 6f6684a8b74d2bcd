"""The strongest decoder the budget allows: several kinds, grown until the error stops falling, then averaged.

Each kind is one way to undo an encoder: a convolutional decoder for features that kept their positions, a dense and an
attention front end for features that scrambled them (`sca`), trained on fresh transmissions of augmented pictures. A
kind grows (wider, deeper, longer) while its held-out error falls by more than `gain`; the curve pairs the number of
parameters with the best held-out error so far. The answers of the best decoders are averaged with weights that
minimise the held-out error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from splitveil.attacks.base import Attack, Progress, Reconstruction, ThreatModel, silent
from splitveil.attacks.fitting import Fit, FitOptions, Loss, decode, fit, mean_squared
from splitveil.attacks.networks import Kind, build
from splitveil.attacks.view import View
from splitveil.core.options import Options as AnyOptions
from splitveil.functional.ssim import ssim
from splitveil.models.cost import parameters


class StrongOptions(FitOptions):
    """Where growth starts, and when it stops."""

    kinds: tuple[Kind, ...] = ("residual", "dense", "attention")
    blocks: int = Field(8, ge=0)
    width: int = Field(96, ge=1)
    growths: int = Field(2, ge=0, description="how often a kind may grow: width doubles, epochs grow by half")
    gain: float = Field(0.02, ge=0, description="go on growing while the held-out error falls by this share")
    losses: tuple[Literal["mse", "ssim"], ...] = ("mse", "ssim")
    ssim_weight: float = Field(0.05, ge=0)
    members: int = Field(3, ge=1, description="decoders that vote in the end")
    augment: bool = True
    epochs: int = 60
    holdout: float = Field(0.1, gt=0, lt=1)


@dataclass(frozen=True)
class _Trained:
    label: str
    decoder: nn.Module
    error: float
    size: int


class StrongDecoderAttack(Attack):
    """See the module docstring."""

    name = "decoder_strong"
    threat_model = ThreatModel(features=True, queries=True, auxiliary=True)
    Options: ClassVar[type[AnyOptions]] = StrongOptions
    options: StrongOptions

    def run(self, view: View, progress: Progress = silent) -> Reconstruction:
        options = self.options
        kinds = options.kinds if len(view.feature_shape) == 3 else ("dense",)
        rounds = len(kinds) * (options.growths + 1) + len(options.losses) - 1
        self._own, self._held = _hold_out(view, options.holdout)
        trained: list[_Trained] = []
        leader: tuple[Kind, int] = (kinds[0], 0)
        curve: list[tuple[float, float]] = []

        def train(kind: Kind, growth: int, loss: str) -> _Trained:
            report = lambda done, total: progress(  # noqa: E731 - a closure over this round
                f"{self.name} {kind}", len(trained) * total + done, rounds * total
            )
            made = self._train(view, kind, growth, loss, report)
            trained.append(made)
            curve.append((float(made.size), min(one.error for one in trained)))
            return made

        for kind in kinds:
            last = None
            for growth in range(options.growths + 1):
                made = train(kind, growth, options.losses[0])
                if made.error <= min(one.error for one in trained):
                    leader = (kind, growth)
                if last is not None and made.error > (1 - options.gain) * last:
                    break
                last = made.error
        for loss in options.losses[1:]:  # the other losses on the best shape, as votes that err differently
            train(*leader, loss)
        best = sorted(trained, key=lambda one: one.error)[: options.members]
        weights, error = self._vote(view, [one.decoder for one in best])
        images = sum(w * decode(one.decoder, view.sent) for w, one in zip(weights, best, strict=True))
        assert isinstance(images, Tensor)
        curve.append((float(sum(one.size for one in best)), error))
        return Reconstruction(
            images.clamp(0, 1),
            curve=curve,
            details={
                "decoder": " + ".join(f"{w:.2f} {one.label}" for w, one in zip(weights, best, strict=True)),
                "decoder_parameters": sum(one.size for one in best),
                "tried": {f"{number} {one.label}": one.error for number, one in enumerate(trained)},
            },
        )

    def _train(self, view: View, kind: Kind, growth: int, loss: str, report: object) -> _Trained:
        options = self.options
        generator = view.generator(self.name, kind, growth, loss)
        width, epochs = options.width * 2**growth, round(options.epochs * 1.5**growth)
        decoder = build(
            kind, view.feature_shape, view.image_shape, blocks=options.blocks, width=width, generator=generator
        )
        queries = view.query(self._own, view.augmentation if options.augment else None)
        settings = options.model_copy(update={"epochs": epochs, "holdout": 0.0})
        measure = self._ssim_loss if loss == "ssim" else mean_squared
        fitted: Fit = fit(decoder, queries, settings, generator, report, loss=measure, watch=view.query(self._held))  # type: ignore[arg-type]
        label = f"{kind}-N{options.blocks}C{width}" + ("" if loss == "mse" else f" ({loss})")
        return _Trained(label, fitted.best(), fitted.error, parameters(decoder))

    @property
    def _ssim_loss(self) -> Loss:
        weight = self.options.ssim_weight
        return lambda answer, target: mean_squared(answer, target) + weight * (1 - ssim(answer, target).mean())

    @torch.no_grad()
    def _vote(self, view: View, decoders: list[nn.Module]) -> tuple[list[float], float]:
        """Weights that minimise the held-out error of the weighted answer: least squares with the sum held at 1."""
        held = view.query(self._held)
        sent, target = held.batch(torch.arange(len(held), device=view.device), view.generator(self.name, "vote"))
        errors = torch.stack([(decode(one, sent) - target).flatten() for one in decoders]).double()  # [members, pixels]
        gram = errors @ errors.T / errors.shape[1]
        ridge = 1e-3 * gram.diagonal().mean()  # nearly equal answers make the system singular
        solution = torch.linalg.solve(gram + ridge * torch.eye(len(gram), device=gram.device), torch.ones_like(gram[0]))
        weights = (solution / solution.sum()).clamp_min(0)
        weights = weights / weights.sum()
        return [float(w) for w in weights], float(weights @ gram @ weights)


def _hold_out(view: View, share: float) -> tuple[Tensor, Tensor]:
    """The attacker's pictures in two parts; the second is never trained on nor changed."""
    own = view.auxiliary
    order = torch.randperm(len(own), generator=view.generator("hold out"), device=view.device)
    count = max(1, int(len(own) * share))
    return own[order[count:]], own[order[:count]]
