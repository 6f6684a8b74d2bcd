"""A weaker audit does not erase a stronger one."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from tests import worlds
from torch import nn

import splitveil as sv
from splitveil.audit.earlier import MOVING, set_aside
from splitveil.audit.subjects import AuditData
from splitveil.core.errors import UsageError
from splitveil.experiments.discover import find_runs
from splitveil.report.run_files import read_run, with_details


def audit(out: Path, attacks: list[str], num_images: int = 12) -> dict:
    world = AuditData(aux=worlds.pictures(40, seed=1), test=worlds.pictures(20, seed=2))
    model = sv.SplitModel(nn.Identity(), nn.Sequential(nn.Flatten(), nn.Linear(64, 3)))
    nn.init.zeros_(model.cloud[1].weight)  # type: ignore[index,arg-type]
    nn.init.zeros_(model.cloud[1].bias)  # type: ignore[index,arg-type]
    return sv.audit(model, world, attacks=attacks, num_images=num_images, out=out, check_sanity=False).tree


def stored(folder: Path) -> dict:
    return json.loads((folder / "audit.json").read_text())


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name != ".lock"}


def test_an_audit_with_other_settings_is_set_aside_whole(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run, out = tmp_path / "run", tmp_path / "run" / "audit"
    strong = audit(out, ["linear", "retrieval"])
    parts = names(out)
    assert {"audit.json", "gallery.json", "card.json", "linear", "retrieval", "original"} == parts
    with caplog.at_level(logging.WARNING):
        weak = audit(out, ["linear"], num_images=6)
    assert "earlier" in caplog.text
    assert stored(out)["num_images"] == weak["num_images"] == 6
    assert names(out) == parts - {"retrieval"} | {"earlier"}
    assert names(out / "earlier" / "1") == parts
    assert stored(out / "earlier" / "1")["worst_case"] == json.loads(json.dumps(strong["worst_case"]))
    # nobody takes the earlier one for a run or for the result
    assert find_runs([tmp_path]) == [run]
    shown = with_details(read_run(run))
    assert set(shown.audit.attacks) == {"linear"}
    assert not shown.other_audits


def test_the_same_settings_write_in_place_and_every_other_audit_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    audit(tmp_path, ["linear"])
    audit(tmp_path, ["linear"])
    assert not (tmp_path / "earlier").exists()
    audit(tmp_path, ["retrieval"])
    audit(tmp_path, ["linear", "retrieval"])
    audit(tmp_path, ["linear"])
    assert names(tmp_path / "earlier") == {"1", "2", "3"}
    kept = [set(stored(tmp_path / "earlier" / number)["attacks"]) for number in ("1", "2", "3")]
    assert kept == [{"linear"}, {"retrieval"}, {"linear", "retrieval"}]
    assert str(tmp_path / "earlier" / "3") in caplog.text


def test_numbers_of_audits_are_never_given_twice(tmp_path: Path) -> None:
    for number in ("2", "10", "notes"):
        (tmp_path / "earlier" / number).mkdir(parents=True)
    (tmp_path / "audit.json").write_text(json.dumps({"signature": "a", "sanity": {}}))
    assert set_aside(tmp_path, {"signature": "b", "sanity": {}})
    assert names(tmp_path / "earlier") == {"2", "10", "11", "notes"}


def test_an_interrupted_audit_leaves_the_finished_one_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit(tmp_path, ["linear", "retrieval"])
    before = stored(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("splitveil.audit.api.assemble", interrupt)
        with pytest.raises(KeyboardInterrupt):
            audit(tmp_path, ["linear"], num_images=6)
    assert stored(tmp_path) == before
    with monkeypatch.context() as patch:
        patch.setattr("splitveil.attacks.linear.LinearAttack.run", interrupt)  # its outcome is known already
        after = audit(tmp_path, ["linear"], num_images=6)
    assert after["num_images"] == stored(tmp_path)["num_images"] == 6
    assert stored(tmp_path / "earlier" / "1") == before
    assert not (tmp_path / "partial").exists()


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupted_move_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "partial").mkdir()
    (tmp_path / MOVING / "linear").mkdir(parents=True)  # moved before the interruption
    (tmp_path / "retrieval").mkdir()
    (tmp_path / "audit.json").write_text(json.dumps({"signature": "a", "sanity": {}}))
    assert set_aside(tmp_path, {"signature": "b", "sanity": {}})
    assert names(tmp_path / "earlier" / "1") == {"linear", "retrieval", "audit.json"}
    assert names(tmp_path) == {"earlier", "partial"}
    assert not set_aside(tmp_path, {"signature": "b", "sanity": {}})


@pytest.mark.parametrize("content", ["", "null", "[1]", "{"])
def test_a_damaged_audit_is_no_finished_one(tmp_path: Path, content: str) -> None:
    (tmp_path / "audit.json").write_text(content)
    assert not set_aside(tmp_path, {"signature": "b"})
    assert names(tmp_path) == {"audit.json"}


def test_leaving_out_the_sanity_check_is_another_setting(tmp_path: Path) -> None:
    (tmp_path / "audit.json").write_text(json.dumps({"signature": "a", "sanity": {"passed": True}}))
    assert not set_aside(tmp_path, {"signature": "a", "sanity": {"passed": False}})
    assert set_aside(tmp_path, {"signature": "a", "sanity": None})


def test_an_audit_alone_is_no_run_and_says_what_to_give(tmp_path: Path) -> None:
    for place, words in (("mine/audit", "the folder above it"), ("alone", "NAME/audit")):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "audit.json").write_text("{}")
        with pytest.raises(UsageError, match="is an audit, not a run folder") as told:
            find_runs([tmp_path / place])
        assert words in told.value.hint
    assert find_runs([tmp_path / "mine"]) == [tmp_path / "mine"]
