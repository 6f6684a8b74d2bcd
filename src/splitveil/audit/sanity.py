"""Is the suite itself in order? In the same run it must break a model without any protection and must learn nothing
from one that sends nothing; otherwise its failure on the model under audit would mean nothing.

The suite is what the audit runs, in a short form and on few pictures: an audit by a toothless attack alone has no
verdict. Attacks that make no pictures are not part of it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from splitveil import attacks as attack_family
from splitveil.attacks.base import NotApplicableError, Reconstruction
from splitveil.attacks.view import Scene, View
from splitveil.audit.floors import floors
from splitveil.audit.metrics import compare
from splitveil.data.augment import to_float
from splitveil.data.dataset import ImageSet
from splitveil.models.split import SplitModel

log = logging.getLogger("splitveil.audit")

AUXILIARY, TARGETS = 1000, 200  # enough to see whether an attack works at all
BROKEN = 0.25  # the undefended model must be broken to this share of the mean picture's error
SHORT: dict[str, Any] = {"blocks": 1, "width": 32, "epochs": 2, "batch_size": 32, "lr": 4e-3}
EFFORTS = (1, 4)  # a suite that does not break the undefended model at once may try again for longer
WITHOUT_PICTURES = ("attribute", "membership")
QUICK: dict[str, dict[str, Any]] = {  # a short form of each attack; others run as they are in the audit
    "decoder": {**SHORT, "kind": "shuffle", "best_epoch": "off"},
    "linear": {},
    "average": {**SHORT, "kind": "shuffle", "best_epoch": "off", "repeats": 2},
    "retrieval": {},
    "decoder_strong": {**SHORT, "kinds": ("shuffle",), "growths": 0, "losses": ("mse",), "seeds": 1},
    "optimize": {"steps": 100, "restarts": 1},
    "refine": {"steps": 50},
    "substitute": {**SHORT, "kind": "shuffle", "substitute_epochs": 1, "substitute_width": 8},
    "gan": {**SHORT, "kind": "shuffle", "gan_epochs": 1, "critic_width": 8},
    "prior": {"width": 16, "epochs": 1, "steps": 5, "inner": 5, "samples": 1, "num_images": 50},
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


def sanity(auxiliary: ImageSet, targets: ImageSet, plan: Mapping[str, Mapping[str, Any]], seed: int) -> dict[str, Any]:
    """Attack a model that sends everything and one that sends nothing; what audit.json says under `sanity`."""
    own = auxiliary.subset(torch.linspace(0, len(auxiliary) - 1, min(AUXILIARY, len(auxiliary))).long())
    suite = {name: options for name, options in plan.items() if name not in WITHOUT_PICTURES}
    under_attack = targets.subset(torch.arange(min(TARGETS, len(targets))))
    floor = float(floors(own, under_attack, shared_labels=False)["mean_image"].mse.mean())
    truth = to_float(under_attack.images).double()
    constant = float((truth - truth.mean(0)).square().mean())  # no answer that ignores the picture can be better
    flat = floor < 1e-6  # constant pictures: every attack is right without looking
    everything, broken = {}, flat
    for effort in EFFORTS:
        everything = _errors(own, under_attack, suite, effort, nothing=False, seed=seed)
        broken = flat or min(everything.values(), default=math.inf) <= BROKEN * floor
        if broken:
            break
    nothing = _errors(own, under_attack, suite, 1, nothing=True, seed=seed)
    # rounding of float32 answers; no answer at all is no proof
    blind = flat or min(nothing.values(), default=-math.inf) >= constant * (1 - 1e-6)
    return {
        "undefended": {"mse": everything, "must_reach": BROKEN * floor, "passed": broken},
        "constant": {"mse": nothing, "must_not_beat": constant, "passed": blind},
        "passed": broken and blind,
    }


def _quick(name: str, options: Mapping[str, Any], pictures: int, effort: int) -> dict[str, Any]:
    """The short form of an attack; what is trained gets as many steps from few pictures as from many."""
    short = dict(QUICK.get(name, options))
    if name in QUICK and "epochs" in short:
        short["epochs"] = math.ceil(effort * short["epochs"] * AUXILIARY / pictures)
    return short


def _errors(
    own: ImageSet,
    under_attack: ImageSet,
    suite: Mapping[str, Mapping[str, Any]],
    effort: int,
    *,
    nothing: bool,
    seed: int,
) -> dict[str, float]:
    shape = tuple(own.images.shape[1:])
    model = SplitModel(_Sends(shape, nothing), nn.Flatten()).eval()
    scene = Scene(model, own, under_attack, seed=seed)
    # where `refine` has nothing to start from, a short decoder: a long one of its own would prove no more
    start: dict[str, dict[str, Any]] = {"decoder": {}} if "refine" in suite else {}
    errors = {}
    for name, options in {**start, **suite}.items():
        attack = attack_family.create(name, **_quick(name, options, len(own), effort))
        try:
            outcome = attack.run(View(scene, attack.threat_model))
            if not isinstance(outcome, Reconstruction):
                continue
            scene.earlier[name] = (attack.threat_model, outcome)
            if name in suite:
                seen = under_attack.images[: len(outcome.images)]
                errors[name] = float(compare(outcome.images, seen).mse.mean())
        except NotApplicableError:
            continue
        except Exception as error:  # an attack that breaks down here proves nothing; those that run still may
            log.warning("the attack '%s' failed in the check of the suite: %s", name, error)
    return errors
