"""The suite proves itself, and says so when it cannot; the card shows a later change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests import worlds

import splitveil as sv
from splitveil.attacks.base import Reconstruction
from splitveil.attacks.retrieval import RetrievalAttack
from splitveil.audit import sanity as module
from splitveil.audit.card import intact
from splitveil.audit.sanity import sanity
from splitveil.audit.subjects import AuditData
from splitveil.audit.table import table
from splitveil.core.errors import SplitveilError

PLAN: dict[str, dict[str, object]] = {"decoder": {}, "linear": {}, "retrieval": {}}
AUX, TARGETS = worlds.pictures(150, seed=1), worlds.pictures(40, seed=2)


def test_the_suite_breaks_the_undefended_and_learns_nothing_from_nothing() -> None:
    found = sanity(AUX, TARGETS, PLAN, seed=0)
    assert found["passed"]
    assert min(found["undefended"]["mse"].values()) < 1e-4  # a rearrangement is linear: least squares undoes it
    assert set(found["constant"]["mse"]) == {"decoder", "linear", "retrieval"}


@pytest.mark.parametrize("name", ["decoder", "linear", "average", "decoder_strong", "optimize", "refine"])
def test_each_of_these_breaks_the_undefended_model_alone(name: str) -> None:
    found = sanity(AUX, TARGETS, {name: {}}, seed=0)
    assert found["passed"]
    assert name in found["undefended"]["mse"]


def test_what_is_proved_is_what_was_run() -> None:
    """A plan of one toothless attack is not saved by others that were not run."""
    weak = {"optimize": {"steps": 1, "lr": 1e-9}}
    module_quick = module.QUICK["optimize"]
    assert module_quick["steps"] > 1
    found = sanity(AUX, TARGETS, {"membership": {}, **weak}, seed=0)
    assert set(found["undefended"]["mse"]) == {"optimize"}
    data = AuditData(aux=AUX, test=TARGETS)
    assert sv.audit(worlds.identity(), data, attacks=["retrieval"]).tree["sanity"]["undefended"]["mse"].keys() == {
        "retrieval"
    }


def test_a_toothless_suite_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.QUICK, "decoder", {**module.QUICK["decoder"], "epochs": 1, "lr": 1e-9})
    found = sanity(AUX, TARGETS, {"decoder": {}}, seed=0)
    assert not found["passed"]
    assert not found["undefended"]["passed"]


def test_a_suite_that_knows_the_answer_fails(monkeypatch: pytest.MonkeyPatch) -> None:

    def cheat(self, view, progress=None):
        return Reconstruction(TARGETS.images.float() / 255)

    monkeypatch.setattr(RetrievalAttack, "run", cheat)
    found = sanity(AUX, TARGETS, PLAN, seed=0)
    assert not found["constant"]["passed"]


def test_no_verdict_without_sanity(monkeypatch: pytest.MonkeyPatch) -> None:
    data = AuditData(aux=AUX, test=TARGETS)
    assert sv.audit(worlds.identity(), data, attacks=["linear"]).tree["verdict"]["leak"] > 0.99
    assert sv.audit(worlds.identity(), data, attacks=["linear"], check_sanity=False).tree["verdict"] is None
    monkeypatch.setattr(module, "BROKEN", -1.0)
    assert sv.audit(worlds.identity(), data, attacks=["linear"]).tree["verdict"] is None


def test_an_attack_that_has_nothing_to_do_is_left_out_and_the_verdict_stays() -> None:
    """A model one did not train comes without its training pictures; wide features are too much for least squares."""
    data = AuditData(aux=AUX, test=TARGETS)
    plan = {"linear": {"largest": 3}, "optimize": {"steps": 60}, "membership": {}}
    tree = sv.audit(worlds.identity(), data, attacks=plan).tree
    assert "too many" in tree["skipped"]["linear"]
    assert "trained on" in tree["skipped"]["membership"]
    assert tree["failures"] == {}
    assert list(tree["attacks"]) == ["optimize"]
    assert tree["verdict"]["leak"] > 0.9
    assert "left out: membership" in table(tree)
    with pytest.raises(SplitveilError, match="No attack gave"):
        sv.audit(worlds.identity(), data, attacks={"linear": {"largest": 3}})


def test_the_card_is_signed(tmp_path: Path) -> None:
    report = sv.audit(worlds.identity(), AuditData(aux=AUX, test=TARGETS), attacks=["linear"], out=tmp_path)
    content = json.loads((tmp_path / "card.json").read_text())
    assert intact(content)
    assert content["signature"] == report.tree["signature"]
    assert content["worst_case"]["mse"] == report.worst_case["mse"]
    content["worst_case"]["mse"] = 0.9
    assert not intact(content)


def test_two_different_attackers_leave_different_signatures() -> None:
    data = AuditData(aux=AUX, test=TARGETS)
    first = sv.audit(worlds.identity(), data, attacks=["linear"], check_sanity=False).tree["signature"]
    again = sv.audit(worlds.identity(), data, attacks=["linear"], check_sanity=False).tree["signature"]
    other = sv.audit(worlds.identity(), data, attacks=["linear"], check_sanity=False, seed=1).tree["signature"]
    assert first == again != other
