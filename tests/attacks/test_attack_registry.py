"""What holds for every attack in the catalogue."""

from __future__ import annotations

import pytest
from tests import worlds

from splitveil import attacks, defences
from splitveil.attacks.base import Attack, ThreatModel
from splitveil.attacks.view import View
from splitveil.audit.tiers import TIERS
from splitveil.core.catalogue import DEFENCES
from splitveil.core.errors import ConfigError, ThreatModelError, UnknownNameError


@pytest.mark.parametrize("name", attacks.names())
def test_every_attack_declares_itself(name: str) -> None:
    attack = attacks.create(name)
    assert isinstance(attack, Attack)
    assert attack.name == name
    assert attack.threat_model.features
    assert attacks.describe(name).endswith(".")
    assert name in TIERS["deep"].attacks


@pytest.mark.parametrize("tier", sorted(TIERS))
def test_every_tier_is_made_of_valid_attacks(tier: str) -> None:
    for name, options in TIERS[tier].attacks.items():
        assert attacks.create(name, **options).name == name


def test_harder_tiers_run_everything_the_easier_ones_run() -> None:
    smoke, standard, deep = (set(TIERS[tier].attacks) for tier in ("smoke", "standard", "deep"))
    assert {"decoder", "average", "retrieval"} <= smoke < standard < deep


@pytest.mark.parametrize("name", defences.names())
def test_every_counter_attack_of_a_defence_exists(name: str) -> None:
    for counter in DEFENCES.load(name).counter_attacks:
        assert counter in attacks.names()


def test_wrong_names_and_options_name_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="decoder"):
        attacks.create("decodr")
    with pytest.raises(ConfigError, match="epochs"):
        attacks.create("decoder", epoch=3)


RIGHTS = {
    "repeats": "send_again",
    "queries": "query",
    "weights": "edge",
    "cloud": "cloud",
    "auxiliary": "auxiliary",
    "labels": "auxiliary_labels",
    "candidates": "candidates",
}


@pytest.mark.parametrize("right", sorted(RIGHTS))
def test_a_view_shows_what_is_granted_and_nothing_else(right: str) -> None:
    """Each right opens its own door; without it the same door is shut."""
    scene = worlds.scene(worlds.identity())

    def open_door(view: View) -> object:
        found = getattr(view, RIGHTS[right])
        return found(scene.auxiliary.images) if right == "queries" else found() if right == "repeats" else found

    open_door(View(scene, ThreatModel(**{right: True})))
    others = {name: True for name in RIGHTS if name != right}
    if right == "cloud":
        others.pop("weights")  # the weights are those of both halves
    with pytest.raises(ThreatModelError, match=RIGHTS[right]):
        open_door(View(scene, ThreatModel(**others)))


def test_threat_models_are_ordered_by_what_they_grant() -> None:
    weak, strong = ThreatModel(queries=True), ThreatModel(queries=True, weights=True)
    assert strong.covers(weak)
    assert not weak.covers(strong)
    assert strong.granted() == ["features", "queries", "weights"]
