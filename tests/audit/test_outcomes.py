"""An attack that gives something else than attacks give has failed, and the others' results stay."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import worlds

import splitveil as sv
from splitveil.attacks.base import Attack, Progress, Reconstruction, ThreatModel, View, silent
from splitveil.attacks.view import Scene
from splitveil.audit.outcomes import check_outcome
from splitveil.audit.subjects import AuditData
from splitveil.core import plug_ins
from splitveil.core.catalogue import ATTACKS
from splitveil.core.errors import InputError
from splitveil.core.registry import Entry

GIVEN: dict[str, Any] = {"outcome": None}


class Odd(Attack):
    """Gives what the test asks for."""

    name = "odd"
    threat_model = ThreatModel(features=True)

    def run(self, view: View, progress: Progress = silent) -> Reconstruction:
        return GIVEN["outcome"]


def view() -> View:
    scene = Scene(worlds.identity(0.1), worlds.pictures(20, seed=1), worlds.pictures(6, seed=2))
    return View(scene, Odd.threat_model)


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (None, "gave a NoneType, not a Reconstruction"),
        (Reconstruction(torch.rand(6, 1, 3, 3)), r"'images' have the shape \[6, 1, 3, 3\], not \[1 to 6, 1, 8, 8\]"),
        (Reconstruction(torch.rand(7, 1, 8, 8)), "'images' have the shape"),
        (Reconstruction(torch.rand(0, 1, 8, 8)), "'images' have the shape"),
        (Reconstruction(torch.zeros(6, 1, 8, 8, dtype=torch.uint8)), "'images' are torch.uint8, not floats"),
        (Reconstruction(torch.full((6, 1, 8, 8), math.nan)), "'images' run from nan to nan"),
        (Reconstruction(255 * torch.ones(6, 1, 8, 8)), "'images' run from 255 to 255, not from 0 to 1"),
        (Reconstruction(torch.rand(6, 1, 8, 8), {"early": torch.rand(2, 2)}), "'early' have the shape"),
    ],
)
def test_what_cannot_be_scored_is_refused(outcome: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_outcome(outcome, view())


def test_fewer_pictures_and_rounding_are_fine() -> None:
    check_outcome(Reconstruction(torch.full((2, 1, 8, 8), 1 + 1e-6)), view())


def test_a_wrong_answer_is_a_failure_of_that_attack_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ATTACKS._entries, "odd", Entry(f"{__name__}:Odd", "Odd.", source=__name__))
    monkeypatch.setitem(GIVEN, "outcome", Reconstruction(torch.full((30, 1, 8, 8), math.nan)))
    data = AuditData(aux=worlds.pictures(60, seed=1), test=worlds.pictures(30, seed=2))
    model = worlds.identity(0.1)
    report = sv.audit(model, data, attacks=["odd", "linear"], check_sanity=False)
    assert set(report.attacks) == {"linear"}
    assert "run from nan" in report.tree["failures"]["odd"]


class Broken(Odd):
    name = "broken"

    def run(self, view: View, progress: Progress = silent) -> Reconstruction:
        raise KeyError("gamma")


def test_an_error_inside_an_attack_is_told_with_its_class_and_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ATTACKS._entries, "broken", Entry(f"{__name__}:Broken", "Broken.", source=__name__))
    data = AuditData(aux=worlds.pictures(60, seed=1), test=worlds.pictures(30, seed=2))
    report = sv.audit(worlds.identity(0.1), data, attacks=["broken", "linear"], check_sanity=False)
    line = 1 + Broken.run.__code__.co_firstlineno
    where = f"failed in Broken.run ({__name__}, line {line}): KeyError: 'gamma'."
    assert report.tree["failures"]["broken"].endswith(where)


@pytest.mark.parametrize("given", [[Odd], [Odd.__new__(Odd)], {Odd: {}}])
def test_an_attack_without_a_name_is_told_to_take_one(given: Any) -> None:
    with pytest.raises(InputError, match=r"asked for by name, not as .*Odd.*entry point"):
        sv.audit(worlds.identity(0.1), "fashion-mini", attacks=given)


def test_an_audit_with_other_code_of_an_attack_is_another_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(ATTACKS._entries, "odd", Entry(f"{__name__}:Odd", "Odd.", source=__name__))
    monkeypatch.setitem(GIVEN, "outcome", Reconstruction(torch.rand(30, 1, 8, 8)))
    data = AuditData(aux=worlds.pictures(60, seed=1), test=worlds.pictures(30, seed=2))

    def lines(*codes: str) -> list[str]:
        found = []
        for code in codes:
            monkeypatch.setattr(plug_ins, "_code", lambda package, code=code: code)
            report = sv.audit(
                worlds.identity(0.1),
                data,
                attacks=["odd"],
                check_sanity=False,
                out=tmp_path,
                reuse=True,
                signature="s",
            )
            found.append(report.tree["signature"])
        return found

    first, again, edited = lines("one", "one", "two")
    assert first == again != edited
    assert "|plug_ins:" in first
