"""An audit whose attacks make no pictures is kept: what they found, but no worst case and no verdict."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests import worlds
from torch import Tensor

import splitveil as sv
from splitveil.attacks.attribute import AttributeAttack
from splitveil.attacks.base import Inference, Progress, silent
from splitveil.attacks.view import View
from splitveil.audit.budget import check_budget, parse_budget
from splitveil.audit.report import AuditReport
from splitveil.audit.subjects import AuditData
from splitveil.audit.table import table
from splitveil.core.errors import QualityGateError, SplitveilError
from splitveil.core.pins import intact
from splitveil.report.run_files import read_run, with_details

DATA = AuditData(aux=worlds.pictures(60, seed=1), test=worlds.pictures(32, seed=2), train=worlds.pictures(40, seed=3))
PLAN = {"attribute": {"epochs": 1}, "membership": {"epochs": 1, "shadows": 1}}


def audit(out: Path, *names: str) -> AuditReport:
    return sv.audit(worlds.identity(), DATA, attacks={name: PLAN[name] for name in names}, out=out)


@pytest.mark.parametrize("name", ["attribute", "membership"])
def test_what_was_found_is_kept_and_reported(name: str, tmp_path: Path) -> None:
    found = audit(tmp_path / "audit", name).tree
    assert json.loads((tmp_path / "audit" / "audit.json").read_text()) == json.loads(json.dumps(found))
    assert intact(json.loads((tmp_path / "audit" / "card.json").read_text()))
    assert set(found["inference"]) == {name}
    assert found["attacks"] == found["worst_case"] == found["worst_decile"] == found["per_class"] == {}
    assert found["verdict"] is found["sanity"] is found["worst_case_once"] is None
    assert found["floors"]["mean_image"]["mse"] > 0
    assert any("No attack of this audit made pictures" in text for text in found["warnings"])
    lines = table(found).splitlines()
    assert not any(line.startswith("worst case") for line in lines)
    assert any(line.startswith(f"{name}: ") and "%" in line for line in lines)
    assert any(line.startswith("no verdict: no attack of this audit made pictures") for line in lines)
    shown = with_details(read_run(tmp_path))
    assert set(shown.audit.inference) == {name}
    assert not shown.audit.leak.known
    with pytest.raises(QualityGateError, match="nothing for a budget to judge"):
        check_budget(parse_budget("ssim<=0.5"), found)


def test_where_the_attack_on_pictures_broke_down_the_audit_fails_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr("splitveil.attacks.linear.LinearAttack.run", broken)
    with pytest.raises(SplitveilError, match=r"No attack gave a reconstruction \(linear: RuntimeError: no luck\)"):
        sv.audit(worlds.identity(), DATA, attacks={"linear": {}, "attribute": PLAN["attribute"]}, out=tmp_path)


def test_attributes_of_the_pictures_under_attack_are_not_shown_to_the_attacker(monkeypatch: pytest.MonkeyPatch) -> None:
    """It learns from those of its own pictures; the others are what its answers are held against."""
    shown: list[dict[str, Tensor]] = []

    def noting(self: AttributeAttack, view: View, progress: Progress = silent) -> Inference:
        shown.append(view.attributes)
        return Inference(predictions={"hat from feature": torch.zeros(32, dtype=torch.int64)})

    monkeypatch.setattr(AttributeAttack, "run", noting)
    mine, theirs = torch.arange(60) % 2, (torch.arange(32) % 4 == 0).long()
    tree = sv.audit(worlds.identity(), replace(DATA, attributes={"hat": (mine, theirs)}), attacks=["attribute"]).tree
    assert torch.equal(shown[0]["hat"], mine)
    assert torch.equal(shown[0]["class"], DATA.aux.labels)
    assert tree["inference"]["attribute"]["findings"]["hat from feature"]["rate"] == 0.75
