"""The strongest decoder the budget allows: a race of kinds, growth of the best, then a vote.

Each kind is one way to undo an encoder: a convolutional decoder for features that kept their positions, a dense and an
attention front end for features that scrambled them (`sca`), trained on fresh transmissions of augmented pictures. The
race includes the plain decoder of `decoder` itself. The winner grows (wider, longer) while its held-out error falls by
more than `gain`; the curve pairs the number of parameters with the best held-out error so far. The grown winner is
trained again with other losses and seeds, for answers that err differently. In the end all decoders vote, with
non-negative weights that minimise the held-out error: no worse there than the best of them, the plain one included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from splitveil.attacks.base import Attack, Progress, Reconstruction, ThreatModel, round_of, silent
from splitveil.attacks.fitting import FitOptions, decode, mean_squared
from splitveil.attacks.networks import Kind, build
from splitveil.attacks.queries import CHUNK
from splitveil.attacks.resuming import fit_once
from splitveil.attacks.view import View
from splitveil.functional.ssim import ssim
from splitveil.models.cost import parameters

Report = Callable[[int, int], None]


class StrongOptions(FitOptions):
    """Where growth starts, and when it stops."""

    kinds: tuple[Kind, ...] = Field(("residual", "dense", "attention"), description="decoders that race")
    blocks: int = Field(8, ge=0, description="residual blocks of each decoder")
    width: int = Field(64, ge=1, description="channels of the blocks in the race")
    growths: int = Field(2, ge=0, description="how often the winner may grow: width doubles, epochs grow by half")
    gain: float = Field(0.02, ge=0, description="go on growing while the held-out error falls by this share")
    losses: tuple[Literal["mse", "ssim"], ...] = Field(("mse", "ssim"), min_length=1, description="what decoders lower")
    ssim_weight: float = Field(0.05, ge=0, description="weight of 1 - SSIM beside the MSE in the loss `ssim`")
    seeds: int = Field(2, ge=1, description="how often the grown winner is trained, each time from another start")
    members: int = Field(4, ge=1, description="at most so many decoders vote in the end")
    augment: bool = Field(True, description="also train on augmented pictures, where the data set has an augmentation")
    holdout: float = Field(0.1, gt=0, lt=1, description="share of the adversary's pictures kept to race, grow and vote")
    most_held: int = Field(2000, ge=1, description="at most so many are kept: more would only be missed in training")


@dataclass(frozen=True)
class Candidate:
    """One decoder to train."""

    kind: Kind
    width: int
    epochs: int
    augment: bool
    loss: Literal["mse", "ssim"]
    seed: int = 0

    def label(self, blocks: int) -> str:
        remarks = [*([self.loss] if self.loss != "mse" else []), *(["augmented"] if self.augment else [])]
        remarks += [f"seed {self.seed}"] if self.seed else []
        return f"{self.kind}-N{blocks}C{self.width}" + (f" ({', '.join(remarks)})" if remarks else "")


@dataclass(frozen=True)
class Trained:
    """A candidate after training, as it was in its best epoch."""

    candidate: Candidate
    decoder: nn.Module
    error: float  # on the held-out pictures
    size: int


class StrongDecoderAttack(Attack):
    """See the module docstring."""

    name = "decoder_strong"
    threat_model = ThreatModel(features=True, queries=True, auxiliary=True)
    Options = StrongOptions
    options: StrongOptions

    def run(self, view: View, progress: Progress = silent) -> Reconstruction:
        options = self.options
        own, held = hold_out(view, options.holdout, options.most_held)
        racers = self._racers(view)
        rounds = len(racers) + options.growths + len(options.losses) - 1 + options.seeds - 1
        trained: list[Trained] = []

        def train(candidate: Candidate) -> Trained:
            report = round_of(progress, f"{self.name} {candidate.kind}", len(trained), rounds)
            trained.append(self._train(view, candidate, own, held, report))
            return trained[-1]

        winner = min([train(racer) for racer in racers], key=lambda one: one.error)
        enough = options.growths == 0
        for _ in range(options.growths):
            before = winner.candidate
            grown = train(replace(before, width=2 * before.width, epochs=round(1.5 * before.epochs)))
            enough = grown.error > (1 - options.gain) * winner.error
            winner = min(winner, grown, key=lambda one: one.error)
            if enough:
                break
        for loss in options.losses[1:]:
            train(replace(winner.candidate, loss=loss))
        for seed in range(1, options.seeds):
            train(replace(winner.candidate, seed=seed))
        return self._answer(view, trained, held, still_growing=not enough)

    def _racers(self, view: View) -> list[Candidate]:
        """Every kind once, and the convolutional one both with augmentation and, as `decoder` trains it, without."""
        options = self.options
        augment = options.augment and view.augmentation is not None
        kinds: tuple[Kind, ...] = options.kinds if len(view.feature_shape) == 3 else ("dense",)
        plain: Kind = "residual" if len(view.feature_shape) == 3 else "dense"
        first = options.losses[0]
        found = [Candidate(kind, options.width, options.epochs, augment, first) for kind in kinds]
        if augment and plain in kinds:
            found.insert(0, Candidate(plain, options.width, options.epochs, augment=False, loss=first))
        return found

    def _train(self, view: View, candidate: Candidate, own: Tensor, held: Tensor, report: Report) -> Trained:
        options, label = self.options, candidate.label(self.options.blocks)
        generator = view.generator(self.name, label)
        decoder = build(
            candidate.kind,
            view.feature_shape,
            view.image_shape,
            blocks=options.blocks,
            width=candidate.width,
            generator=generator,
        )
        queries = view.query(own, view.augmentation if candidate.augment else None, tamed=True)
        settings = options.model_copy(update={"epochs": candidate.epochs, "holdout": 0.0})
        measure = self._with_similarity if candidate.loss == "ssim" else mean_squared
        watch = view.query(held, tamed=True)
        fitted = fit_once(view.memory, label, decoder, queries, settings, generator, report, loss=measure, watch=watch)
        return Trained(candidate, fitted.best(), fitted.error, parameters(decoder))

    def _with_similarity(self, answer: Tensor, target: Tensor) -> Tensor:
        return mean_squared(answer, target) + self.options.ssim_weight * (1 - ssim(answer, target).mean())

    def _answer(self, view: View, trained: list[Trained], held: Tensor, *, still_growing: bool) -> Reconstruction:
        gram = self._products(view, [one.decoder for one in trained], held)
        weights = vote(gram, self.options.members)
        sent = view.taming(view.sent)
        voters = [(float(w), one) for w, one in zip(weights, trained, strict=True) if w > 0]
        images = sum(w * decode(one.decoder, sent) for w, one in voters)
        assert isinstance(images, Tensor)
        size = sum(one.size for _, one in voters)
        curve = [
            (float(one.size), min(other.error for other in trained[: place + 1])) for place, one in enumerate(trained)
        ]
        blocks = self.options.blocks
        return Reconstruction(
            images.clamp(0, 1),
            curve=[*curve, (float(size), float(weights @ gram @ weights))],
            details={
                "decoder": " + ".join(f"{w:.2f} {one.candidate.label(blocks)}" for w, one in voters),
                "decoder_parameters": size,
                "still_growing": still_growing,
                "tried": {one.candidate.label(blocks): one.error for one in trained},
            },
        )

    @torch.no_grad()
    def _products(self, view: View, decoders: list[nn.Module], held: Tensor) -> Tensor:
        """Mean products of the decoders' errors on the held-out pictures [members, members], float64."""
        queries, generator = view.query(held, tamed=True), view.generator(self.name, "vote")
        total = torch.zeros(len(decoders), len(decoders), dtype=torch.float64, device=view.device)
        for index in torch.arange(len(queries), device=view.device).split(CHUNK):
            sent, target = queries.batch(index, generator)
            errors = torch.stack([(decode(one, sent) - target).flatten() for one in decoders]).double()
            total += errors @ errors.T / target[0].numel()
        return total / len(queries)


def vote(gram: Tensor, most: int) -> Tensor:
    """Weights w >= 0 with sum 1 and at most `most` of them above 0 that make w'Gw small; never above min G_ii.

    Least squares with the sum held at 1, dropping the lowest weight until none is negative and few enough are left.
    """
    alive = list(range(len(gram)))
    weights = torch.zeros_like(gram[0])
    while True:
        part = gram[alive][:, alive]
        # nearly equal answers make the system singular, perfect ones make it zero
        ridge = (1e-4 * part.diagonal().mean()).clamp_min(1e-12) * torch.ones_like(part[0])
        solution = torch.linalg.solve(part + ridge.diag(), torch.ones_like(part[0]))
        share = solution / solution.sum()
        if len(alive) <= most and bool((share >= 0).all()):
            break
        alive.pop(int(share.argmin()))
    weights[alive] = share
    best = int(gram.diagonal().argmin())
    if float(weights @ gram @ weights) > float(gram[best, best]):
        weights = torch.zeros_like(weights)
        weights[best] = 1
    return weights


def hold_out(view: View, share: float, most: int) -> tuple[Tensor, Tensor]:
    """The attacker's pictures in two parts; the second is never trained on nor changed."""
    own = view.auxiliary
    order = torch.randperm(len(own), generator=view.generator("hold out"), device=view.device)
    count = min(most, max(1, int(len(own) * share)))
    return own[order[count:]], own[order[:count]]
