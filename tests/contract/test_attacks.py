"""What holds for every attack: hidden things cannot be read, and what they hold cannot change the outcome."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests import worlds
from torch import Tensor

from splitveil import attacks
from splitveil.attacks.base import Inference, Outcome, Reconstruction, ThreatModel
from splitveil.attacks.view import Scene, View
from splitveil.core.errors import ThreatModelError
from splitveil.data.dataset import ImageSet

NETWORK = {"kind": "residual", "blocks": 0, "width": 8, "epochs": 1, "batch_size": 20}
QUICK: dict[str, dict[str, Any]] = {
    "attribute": {"epochs": 1, "hidden": 4},
    "average": {**NETWORK, "repeats": 3, "best_epoch": "shared"},
    "decoder": {**NETWORK, "best_epoch": "shared"},
    "decoder_strong": {"blocks": 0, "width": 8, "epochs": 1, "growths": 0, "batch_size": 20, "seeds": 1},
    "gan": {**NETWORK, "gan_epochs": 1, "gan_batch_size": 20, "critic_width": 4, "critic_steps": 1},
    "linear": {},
    "membership": {"shadows": 2, "epochs": 1, "batch_size": 10},
    "optimize": {"steps": 2, "restarts": 1},
    "prior": {"width": 8, "epochs": 1, "steps": 2, "inner": 1, "samples": 1, "batch_size": 20},
    "refine": {"steps": 2},
    "retrieval": {},
    "substitute": {**NETWORK, "substitute_epochs": 1, "substitute_width": 4},
}
DOORS = {
    "repeats": lambda view: view.send_again(),
    "queries": lambda view: view.query(worlds.pictures(3, seed=9).images),
    "weights": lambda view: view.edge,
    "cloud": lambda view: view.cloud,
    "auxiliary": lambda view: view.auxiliary,
    "labels": lambda view: (view.auxiliary_labels, view.attributes, view.num_classes),
    "candidates": lambda view: view.candidates,
}
EVERYTHING = ThreatModel(**dict.fromkeys(DOORS, True))


def scene() -> Scene:
    own = worlds.pictures(60, seed=1)
    start = Reconstruction(torch.full((20, 1, 8, 8), 0.5), curve=[(1.0, 0.05)])
    return Scene(
        worlds.identity(0.1),
        own,
        worlds.pictures(20, seed=2),
        seed=3,
        candidates=worlds.pictures(30, seed=4),
        attributes={"class": own.labels},
        num_classes=worlds.CLASSES,
        earlier={"decoder": (ThreatModel(), start)},
    )


def other_secrets(one: Scene, granted: ThreatModel) -> Scene:
    """The same world to this adversary; everything else is different, absent or nonsense."""
    model = worlds.identity(0.1)
    if not (granted.weights or granted.cloud):
        model.cloud = None  # type: ignore[assignment]
    own = one.auxiliary if granted.auxiliary else worlds.pictures(60, seed=77)
    labels = own.labels if granted.labels else own.labels * 0 - 9
    # somebody who sees more has solved it all: nobody else may look it up
    solved = Reconstruction(one.targets.images.float() / 255)
    return replace(
        one,
        model=model,
        auxiliary=ImageSet(own.images, labels),
        targets=ImageSet(one.targets.images, one.targets.labels * 0 - 9),
        candidates=one.candidates if granted.candidates else None,
        attributes=one.attributes if granted.labels else {},
        num_classes=one.num_classes if granted.labels else 1,
        earlier={**one.earlier, "decoder_strong": (EVERYTHING, solved)},
    )


def tensors(outcome: Outcome) -> dict[str, Tensor]:
    if isinstance(outcome, Inference):
        return {**outcome.scores, **outcome.predictions}
    return {"images": outcome.images, **outcome.variants}


def test_every_attack_is_tried_here() -> None:
    assert sorted(QUICK) == attacks.names()


@pytest.mark.parametrize("name", sorted(QUICK))
def test_what_is_hidden_cannot_change_the_outcome(name: str) -> None:
    attack = attacks.create(name, **QUICK[name])
    assert attack.threat_model != EVERYTHING
    first = scene()
    expected = tensors(attack.run(View(first, attack.threat_model)))
    found = tensors(attack.run(View(other_secrets(first, attack.threat_model), attack.threat_model)))
    assert sorted(found) == sorted(expected) != []
    for key, value in expected.items():
        assert torch.equal(found[key], value), key


@pytest.mark.parametrize("name", sorted(QUICK))
def test_hidden_doors_are_shut_and_granted_ones_open(name: str) -> None:
    threat_model = attacks.create(name).threat_model
    view = View(scene(), threat_model)
    for right, door in DOORS.items():
        if getattr(threat_model, right) or (right == "cloud" and threat_model.weights):
            assert door(view) is not None
        else:
            with pytest.raises(ThreatModelError, match="is hidden from"):
                door(view)
