"""Is the suite itself in order? In the same run it must break a model without any protection and must learn nothing
from one that sends nothing; otherwise its failure on the model under audit would mean nothing.
"""

from __future__ import annotations

import logging
import math
from typing import Any

import torch
from torch import Tensor, nn

from splitveil import attacks as attack_family
from splitveil.attacks.base import Reconstruction
from splitveil.attacks.view import Scene, View
from splitveil.audit.floors import floors
from splitveil.audit.metrics import compare
from splitveil.data.augment import to_float
from splitveil.data.dataset import ImageSet
from splitveil.models.split import SplitModel

log = logging.getLogger("splitveil.audit")

AUXILIARY, TARGETS = 1000, 200  # enough to see whether an attack works at all
BROKEN = 0.25  # the undefended model must be broken to this share of the mean picture's error
SUITE: dict[str, dict[str, Any]] = {
    "decoder": {
        "kind": "shuffle",
        "blocks": 1,
        "width": 32,
        "epochs": 2,
        "batch_size": 32,
        "lr": 4e-3,
        "best_epoch": "off",
    },
    "linear": {},
    "retrieval": {},
}


class _Sends(nn.Module):
    """An edge half that sends the picture itself, as a map of a quarter of its side where that divides it."""

    def __init__(self, image_shape: tuple[int, ...], nothing: bool) -> None:
        super().__init__()
        factor = next(f for f in (4, 2, 1) if image_shape[1] % f == 0 and image_shape[2] % f == 0)
        self.rearrange = nn.PixelUnshuffle(factor)
        self.nothing = nothing

    def forward(self, x: Tensor) -> Tensor:
        z = self.rearrange(x)
        return torch.full_like(z, 0.5) if self.nothing else z


def sanity(auxiliary: ImageSet, targets: ImageSet, seed: int) -> dict[str, Any]:
    """Attack a model that sends everything and one that sends nothing; what audit.json says under `sanity`."""
    own = auxiliary.subset(torch.linspace(0, len(auxiliary) - 1, min(AUXILIARY, len(auxiliary))).long())
    under_attack = targets.subset(torch.arange(min(TARGETS, len(targets))))
    floor = float(floors(own, under_attack, shared_labels=False)["mean_image"].mse.mean())
    truth = to_float(under_attack.images).double()
    constant = float((truth - truth.mean(0)).square().mean())  # no answer that ignores the picture can be better
    everything = _errors(own, under_attack, nothing=False, seed=seed)
    nothing = _errors(own, under_attack, nothing=True, seed=seed)
    flat = floor < 1e-6  # constant pictures: every attack is right without looking
    broken = flat or min(everything.values(), default=math.inf) <= BROKEN * floor
    # rounding of float32 answers; no answer at all is no proof
    blind = flat or min(nothing.values(), default=-math.inf) >= constant * (1 - 1e-6)
    return {
        "undefended": {"mse": everything, "must_reach": BROKEN * floor, "passed": broken},
        "constant": {"mse": nothing, "must_not_beat": constant, "passed": blind},
        "passed": broken and blind,
    }


def _errors(own: ImageSet, under_attack: ImageSet, *, nothing: bool, seed: int) -> dict[str, float]:
    shape = tuple(own.images.shape[1:])
    model = SplitModel(_Sends(shape, nothing), nn.Flatten()).eval()
    scene = Scene(model, own, under_attack, seed=seed)
    errors = {}
    for name, options in SUITE.items():
        attack = attack_family.create(name, **options)
        if name == "linear" and own.images[0].numel() > attack.options.largest:
            continue
        try:
            outcome = attack.run(View(scene, attack.threat_model))
            assert isinstance(outcome, Reconstruction)
            errors[name] = float(compare(outcome.images, under_attack.images).mse.mean())
        except Exception as error:  # an attack that breaks down here proves nothing; those that run still may
            log.warning("the attack '%s' failed in the check of the suite: %s", name, error)
    return errors
