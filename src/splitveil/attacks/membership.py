"""Membership inference: was this picture among those the model was trained on?

Two statistics, higher meaning "rather a member", both of the cross-entropy L of the true label:
    loss              -L (Yeom et al. 2018)
    likelihood_ratio  log N(φ; in) - log N(φ; out) with φ = log(p/(1-p)), p = exp(-L) (LiRA; Carlini et al. 2022)

For the second, shadow models of the same architecture are trained on random halves of candidates and own pictures; the
φ of a candidate under models that saw it and under models that did not gives the two Gaussians. LiRA trains hundreds of
shadow models as long as the victim; with a few short ones the ratio needs care, see `likelihood_ratio`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from splitveil.attacks.base import Attack, Inference, NotApplicableError, Progress, ThreatModel, silent
from splitveil.attacks.epochs import run_epochs
from splitveil.attacks.initialising import seeded
from splitveil.attacks.queries import CHUNK, Transmit
from splitveil.attacks.view import View
from splitveil.core.options import Options as AnyOptions
from splitveil.data.augment import augment, to_float
from splitveil.data.dataset import ImageSet


class MembershipOptions(AnyOptions):
    """`shadows` models, each trained for `epochs`; none: only the loss statistic."""

    shadows: int = Field(
        8, ge=0, description="models trained like the victim, in pairs; below 2 only the loss statistic is left"
    )
    epochs: int = Field(15, ge=1, description="epochs of each shadow model")
    batch_size: int = Field(128, ge=2, description="pictures per step")
    lr: float = Field(1e-3, gt=0, description="rate of Adam at the start of its cosine schedule")
    pool: int = Field(10_000, ge=0, description="own pictures that join the candidates in training shadow models")


class MembershipAttack(Attack):
    """See the module docstring."""

    name = "membership"
    threat_model = ThreatModel(features=True, weights=True, auxiliary=True, labels=True, candidates=True)
    Options = MembershipOptions
    options: MembershipOptions

    def run(self, view: View, progress: Progress = silent) -> Inference:
        candidates = view.candidates
        if candidates is None:
            raise NotApplicableError(
                "Membership inference needs pictures the model was trained on.", "Pass train= to AuditData."
            )
        victim = confidence(view.edge, view.cloud, candidates)
        scores = {"loss": F.logsigmoid(victim)}  # log p, from φ = log(p/(1-p))
        if self.options.shadows >= 2:
            inside, outside = self._shadows(view, candidates, progress)
            scores["likelihood_ratio"] = likelihood_ratio(victim, inside, outside)
        return Inference(scores=scores, details=self.options.model_dump())

    def _shadows(self, view: View, candidates: ImageSet, progress: Progress) -> tuple[Tensor, Tensor]:
        """φ of every candidate under shadow models that saw it, and under those that did not: two [K/2, N].

        Shadow models come in pairs with complementary halves, so that every candidate is seen by half of them.
        """
        pool = candidates
        if view.num_classes is not None:
            own = ImageSet(view.auxiliary[: self.options.pool], view.auxiliary_labels[: self.options.pool])
            others = _not_among(candidates, own)
            pool = ImageSet(
                torch.cat([candidates.images, others.images]), torch.cat([candidates.labels, others.labels])
            )
        inside, outside = [], []
        pairs = self.options.shadows // 2
        for pair in range(pairs):
            generator = view.generator(self.name, pair)
            known = view.memory.recall(f"pair {pair}")
            if known is not None:
                inside.append(known["inside"])
                outside.append(known["outside"])
                continue
            first = torch.rand(len(pool), generator=generator, device=view.device) < 0.5
            found = []
            for half in (first, ~first):
                edge, cloud = self._train(view, pool.subset(half.nonzero().flatten()), generator)
                found.append(confidence(edge, cloud, candidates))
            seen = first[: len(candidates)]
            inside.append(torch.where(seen, found[0], found[1]))
            outside.append(torch.where(seen, found[1], found[0]))
            view.memory.remember(f"pair {pair}", {"inside": inside[-1], "outside": outside[-1]})
            progress(self.name, pair + 1, pairs)
        return torch.stack(inside), torch.stack(outside)

    def _train(self, view: View, pictures: ImageSet, generator: torch.Generator) -> tuple[nn.Module, nn.Module]:
        """A model like the victim, from scratch."""
        with seeded(generator):
            edge, cloud = fresh_copy(view.edge), fresh_copy(view.cloud)
            change = None
            if view.augmentation is not None:
                change = partial(augment, augmentation=view.augmentation, generator=generator)
            train_classifier(edge, cloud, view.transmit, pictures, self.options, generator, change)
        return edge, cloud


def _not_among(candidates: ImageSet, pictures: ImageSet) -> ImageSet:
    """Own pictures that are no candidates: a shadow model must not see a candidate by the back door."""
    known = {picture.tobytes() for picture in candidates.images.cpu().numpy()}
    new = [place for place, picture in enumerate(pictures.images.cpu().numpy()) if picture.tobytes() not in known]
    return pictures.subset(torch.tensor(new, dtype=torch.int64))


def fresh_copy(module: nn.Module) -> nn.Module:
    """The same architecture with new weights. Layers that cannot be reset keep theirs (normalisation constants do)."""
    twin = copy.deepcopy(module)
    for layer in twin.modules():
        reset = getattr(layer, "reset_parameters", None)
        if callable(reset):
            reset()
    return twin.requires_grad_(True)


def train_classifier(
    edge: nn.Module,
    cloud: nn.Module,
    transmit: Transmit,
    pictures: ImageSet,
    options: MembershipOptions,
    generator: torch.Generator,
    change: Callable[[Tensor], Tensor] | None,
) -> None:
    """Cross-entropy with Adam and a cosine schedule, through the transmission; ends in eval mode."""
    edge.train()
    cloud.train()

    def loss(index: Tensor) -> Tensor:
        images = pictures.images[index]
        x = to_float(images if change is None else change(images))
        return F.cross_entropy(cloud(transmit(edge(x), generator)), pictures.labels[index])

    run_epochs(
        [edge, cloud],
        loss,
        len(pictures),
        generator,
        epochs=options.epochs,
        batch_size=options.batch_size,
        lr=options.lr,
    )
    edge.eval()
    cloud.eval()


@torch.no_grad()
def confidence(edge: nn.Module, cloud: nn.Module, pictures: ImageSet) -> Tensor:
    """φ = log(p/(1-p)) of the true label [N] on clean features, in a form that never takes log(1 - 1)."""
    found = []
    for images, labels in zip(pictures.images.split(CHUNK), pictures.labels.split(CHUNK), strict=True):
        logits = cloud(edge(to_float(images))).double()
        own = logits.gather(1, labels[:, None])
        others = logits.scatter(1, labels[:, None], -torch.inf)
        found.append((own[:, 0] - others.logsumexp(1)).clamp(-100, 100))  # one class alone would give infinity
    return torch.cat(found)


def likelihood_ratio(victim: Tensor, inside: Tensor, outside: Tensor) -> Tensor:
    """log N(φ; μ_in, v) - log N(φ; μ_out, v) = (μ_in - μ_out)(φ - (μ_in + μ_out)/2)/v of every candidate.

    Shapes: victim [N]; inside, outside [K, N] -> [N]. Three departures from LiRA suit a few short shadow models:
    φ of the victim is brought to the mean and spread that shadow models have over the candidates, for a victim trained
    for longer is surer of members and strangers alike (difficulty calibration; Watson et al. 2022). Both Gaussians
    share one variance, pooled over candidates: with two, a victim far from both would be judged by the wider one. And a
    candidate's own shift μ_in - μ_out counts as far as its spread over candidates exceeds what noise explains.
    """
    pairs = len(inside)
    mean_in, mean_out = inside.mean(0), outside.mean(0)
    shift, centre = mean_in - mean_out, (mean_in + mean_out) / 2
    floor = 1e-6  # shadow models that agree exactly would divide by zero
    if pairs > 1:
        variance = (inside.var(0).mean() + outside.var(0).mean()) / 2 + floor
    else:  # the two models of one pair differ by twice the variance, beside the shift
        variance = shift.var(correction=0) / 2 + floor
    noise = 2 * variance / pairs
    real = (shift.var(correction=0) - noise).clamp_min(0)
    shift = shift.mean() + real / (real + noise) * (shift - shift.mean())
    shift = shift.clamp_min(floor)  # having seen a picture makes no model less sure of it
    shadows = torch.cat([inside, outside])
    spread = victim.std(correction=0).clamp_min(floor)
    matched = (victim - victim.mean()) / spread * shadows.std(1, correction=0).mean() + shadows.mean()
    return shift * (matched - centre) / variance
