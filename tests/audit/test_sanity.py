"""The suite proves itself, and says so when it cannot; the card shows a later change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests import worlds

import splitveil as sv
from splitveil.attacks.base import Reconstruction
from splitveil.attacks.retrieval import RetrievalAttack
from splitveil.audit import sanity as module
from splitveil.audit.sanity import sanity
from splitveil.audit.subjects import AuditData
from splitveil.audit.table import table
from splitveil.core.errors import SplitveilError
from splitveil.core.pins import intact

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
    assert list(found["undefended"]["mse"]) == [name]  # `refine` starts from a decoder, which proves nothing for it


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


GUESS = worlds.floor_error(AUX, TARGETS)  # of the attacker's mean picture
_truth = TARGETS.images.double() / 255
CONSTANT = float((_truth - _truth.mean(0)).square().mean())  # of the best answer that ignores the picture


@pytest.mark.parametrize(
    ("everything", "nothing", "broken", "blind"),
    [
        ({"a": 0.24 * GUESS, "b": GUESS}, {"a": 2 * GUESS, "b": CONSTANT}, True, True),
        ({"a": 0.26 * GUESS}, {"a": GUESS}, False, True),  # a quarter of the error of guessing must be reached
        ({"a": 0.0}, {"a": GUESS, "b": 0.99 * CONSTANT}, True, False),  # one attack that knows too much is enough
        ({"a": 0.0}, {"a": (CONSTANT + GUESS) / 2}, True, True),  # luck: nearer to the pictures' own mean
        ({"a": GUESS}, {"a": 0.0}, False, False),
        ({}, {"a": GUESS}, False, True),  # no answer is no proof
        ({"a": 0.0}, {}, True, False),
    ],
)
def test_both_proofs_are_needed(
    everything: dict[str, float], nothing: dict[str, float], broken: bool, blind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert CONSTANT < 0.999 * GUESS
    errors = {True: nothing, False: everything}
    monkeypatch.setattr(module, "_errors", lambda *_, **more: errors[more["nothing"]])
    found = sanity(AUX, TARGETS, PLAN, seed=0)
    assert (found["undefended"]["passed"], found["constant"]["passed"]) == (broken, blind)
    assert found["passed"] is (broken and blind)
    assert found["undefended"]["must_reach"] == pytest.approx(GUESS / 4)
    assert found["constant"]["must_not_beat"] == pytest.approx(CONSTANT)


def test_a_suite_that_fails_at_first_tries_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def errors(*given: object, nothing: bool, seed: int) -> dict[str, float]:
        tried.append((given[3], nothing))
        return {"a": 1.0 if nothing or given[3] == 1 else 0.0}

    monkeypatch.setattr(module, "_errors", errors)
    assert sanity(AUX, TARGETS, PLAN, seed=0)["passed"]
    assert tried == [(1, False), (4, False), (1, True)]
    epochs = [module._quick("decoder", {}, pictures, effort)["epochs"] for pictures, effort in ((1000, 1), (1000, 4))]
    assert epochs[1] == 4 * epochs[0]
    assert module._quick("decoder", {}, 250, 1)["epochs"] == 4 * epochs[0]  # as many steps from fewer pictures


def test_pictures_that_are_all_alike_prove_nothing_against_the_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every guess is right about them without looking, and no attack is better than that."""
    alike = AUX.subset(torch.zeros(40, dtype=torch.int64))
    monkeypatch.setattr(module, "_errors", lambda *_, **__: {"a": 1e-12})  # rounding
    assert sanity(alike, alike.subset(torch.arange(10)), PLAN, seed=0)["passed"]


def test_the_suite_is_proved_with_the_attackers_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attacker that had the pictures under attack would break anything by looking them up."""
    seen = []

    def looks(self, view, progress=None):
        seen.append(view.auxiliary)
        return Reconstruction(torch.zeros(view.num_targets, *view.image_shape))

    monkeypatch.setattr(RetrievalAttack, "run", looks)
    sv.audit(worlds.identity(), AuditData(aux=AUX, test=TARGETS), attacks=["retrieval"])
    assert len(seen) >= 3  # the audit itself, and both models of known answer
    assert all(torch.equal(one, AUX.images) for one in seen)


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
