"""The edge half is secret and cannot be queried: imitate it, then train a decoder on the imitation.

The adversary is the server: it has the cloud half, the features people send, and labelled pictures of its own. A
substitute edge half f' learns (PCAT: Gao and Zhang 2023; FORA: Xu et al. 2024)

    cross-entropy of cloud(f'(x)) on its own pictures  +  mmd_weight · MMD(transmit(f'(x)), what was sent)

so that its features mean the same to the cloud half and are distributed like the real ones.
"""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from splitveil.attacks.base import Attack, Progress, Reconstruction, ThreatModel, round_of, silent
from splitveil.attacks.decoder import NetworkOptions
from splitveil.attacks.epochs import run_epochs
from splitveil.attacks.fitting import decode
from splitveil.attacks.initialising import seeded
from splitveil.attacks.queries import Queries
from splitveil.attacks.resuming import fit_once, train_once
from splitveil.attacks.view import View
from splitveil.data.augment import to_float

BANDWIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the kernels, relative to the mean squared distance


class SubstituteOptions(NetworkOptions):
    """Training of the imitation; the decoder's options are those of `decoder`."""

    holdout: float = Field(0.0, ge=0, lt=1, description="share of the adversary's pictures kept out of training")
    substitute_epochs: int = Field(30, ge=1, description="epochs of the imitation")
    substitute_width: int = Field(64, ge=1, description="channels of the imitation")
    substitute_lr: float = Field(1e-3, gt=0, description="rate of Adam for the imitation")
    mmd_weight: float = Field(10.0, ge=0, description="weight of matching the distribution of what was sent")


class SubstituteEdge(nn.Module):
    """A convolutional edge half with the right shape of output: strided layers until the side fits, then channels."""

    def __init__(self, image_shape: tuple[int, ...], feature_shape: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.feature_shape = feature_shape
        spatial = len(feature_shape) == 3
        self.side = (feature_shape[1], feature_shape[2]) if spatial else (4, 4)
        layers: list[nn.Module] = [nn.Conv2d(image_shape[0], width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        for _ in range(max(0, round(math.log2(max(1.0, image_shape[1] / self.side[0]))))):
            layers += [nn.Conv2d(width, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.last: nn.Module = nn.Conv2d(width, feature_shape[0], 3, padding=1)
        if not spatial:
            self.last = nn.Sequential(nn.Flatten(), nn.Linear(width * 16, math.prod(feature_shape)))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.adaptive_avg_pool2d(self.body(x), self.side)).reshape(len(x), *self.feature_shape)


class SubstituteAttack(Attack):
    """See the module docstring."""

    name = "substitute"
    threat_model = ThreatModel(features=True, cloud=True, auxiliary=True, labels=True)
    Options = SubstituteOptions
    options: SubstituteOptions

    def run(self, view: View, progress: Progress = silent) -> Reconstruction:
        options, generator = self.options, view.generator(self.name)
        with seeded(generator):
            edge = SubstituteEdge(view.image_shape, view.feature_shape, options.substitute_width).to(view.device)
        train = partial(self._imitate, view, edge, generator, progress)
        found = train_once(view.memory, "edge half", edge, generator, train)
        edge.eval().requires_grad_(False)
        decoder = options.build(view, generator)
        queries = Queries(edge, view.transmit, view.auxiliary)
        report = round_of(progress, self.name, 1, 2)
        fitted = fit_once(view.memory, "decoder", decoder, queries, options, generator, report)
        # the held-out error is that of decoding the imitation, not the victim: it would mislead as a curve
        details = {"substitute_mismatch": float(found["mismatch"]), "decoder": options.label}
        return Reconstruction(decode(fitted.decoder, view.sent), details=details)

    def _imitate(
        self, view: View, edge: nn.Module, generator: torch.Generator, progress: Progress
    ) -> dict[str, Tensor]:
        """Train f' in place; returns the MMD between what it sends in the end and what was sent."""
        options, sent, own = self.options, view.sent, view.auxiliary
        labels = view.auxiliary_labels if view.num_classes is not None else None
        size = min(options.batch_size, len(own), len(sent))

        def loss(index: Tensor) -> Tensor:
            imitation = view.transmit(edge(to_float(own[index])), generator)
            real = sent[torch.randint(len(sent), (size,), generator=generator, device=view.device)]
            distance = mmd(imitation.flatten(1), real.flatten(1))
            if labels is None:
                return options.mmd_weight * distance
            logits = view.cloud(imitation.clone())  # a copy: the cloud half may work in place
            return options.mmd_weight * distance + F.cross_entropy(logits, labels[index])

        edge.train()
        run_epochs(
            [edge],
            loss,
            len(own),
            generator,
            epochs=options.substitute_epochs,
            batch_size=size,
            lr=options.substitute_lr,
            progress=lambda epoch: progress(self.name, epoch, 2 * options.substitute_epochs),
        )
        edge.eval()
        with torch.no_grad():
            imitation = view.transmit(edge(to_float(own[:size])), view.generator(self.name, "mismatch"))
            return {"mismatch": mmd(imitation.flatten(1), sent[:size].flatten(1))}


def mmd(x: Tensor, y: Tensor) -> Tensor:
    """Squared maximum mean discrepancy of samples x, y [B, D] under a sum of Gaussian kernels (Gretton et al. 2012).

    mean k(x, x') + mean k(y, y') - 2 mean k(x, y); 0 for equal samples. Bandwidths follow the mean squared distance,
    which is detached: otherwise growing features would look like matching ones.
    """
    both = torch.cat([x, y])
    squared = torch.cdist(both, both, compute_mode="donot_use_mm_for_euclid_dist").square()
    scale = squared.detach().mean().clamp_min(1e-12)  # equal samples have no distance at all
    kernel = torch.stack([torch.exp(-squared / (factor * scale)) for factor in BANDWIDTHS]).mean(0)
    count = len(x)
    return kernel[:count, :count].mean() + kernel[count:, count:].mean() - 2 * kernel[:count, count:].mean()
