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
from splitveil.core.errors import SplitveilError

AUX, TARGETS = worlds.pictures(150, seed=1), worlds.pictures(40, seed=2)


def test_the_suite_breaks_the_undefended_and_learns_nothing_from_nothing() -> None:
    found = sanity(AUX, TARGETS, seed=0)
    assert found["passed"]
    assert min(found["undefended"]["mse"].values()) < 1e-4  # a rearrangement is linear: least squares undoes it
    assert set(found["constant"]["mse"]) == {"decoder", "linear", "retrieval"}


def test_a_toothless_suite_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SUITE", {"decoder": {**module.SUITE["decoder"], "epochs": 1, "lr": 1e-9}})
    found = sanity(AUX, TARGETS, seed=0)
    assert not found["passed"]
    assert not found["undefended"]["passed"]


def test_a_suite_that_knows_the_answer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    cheat = lambda self, view, progress=None: Reconstruction(TARGETS.images.float() / 255)  # noqa: E731
    monkeypatch.setattr(RetrievalAttack, "run", cheat)
    found = sanity(AUX, TARGETS, seed=0)
    assert not found["constant"]["passed"]


def test_no_verdict_without_sanity(monkeypatch: pytest.MonkeyPatch) -> None:
    data = AuditData(aux=AUX, test=TARGETS)
    assert sv.audit(worlds.identity(), data, attacks=["linear"]).tree["verdict"]["leak"] > 0.99
    assert sv.audit(worlds.identity(), data, attacks=["linear"], check_sanity=False).tree["verdict"] is None
    monkeypatch.setattr(module, "BROKEN", -1.0)
    assert sv.audit(worlds.identity(), data, attacks=["linear"]).tree["verdict"] is None


def test_a_failed_attack_is_reported_and_the_others_are_kept() -> None:
    data = AuditData(aux=AUX, test=TARGETS)
    tree = sv.audit(worlds.identity(), data, attacks={"linear": {"largest": 3}, "retrieval": {}}).tree
    assert "too many" in tree["failures"]["linear"]
    assert list(tree["attacks"]) == ["retrieval"]
    assert tree["verdict"] is None
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
