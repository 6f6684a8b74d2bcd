"""A finished audit that is asked for again is read, not run: another budget costs nothing."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import worlds

import splitveil as sv
from splitveil.audit.report import AuditReport
from splitveil.audit.subjects import AuditData
from splitveil.cli.audit import audit as audit_command
from splitveil.core.config import load_config
from splitveil.core.errors import InputError, QualityGateError, RunFolderError
from splitveil.training.api import train

DATA = AuditData(aux=worlds.pictures(40, seed=1), test=worlds.pictures(12, seed=2))
MODEL = worlds.identity()
RUN = "splitveil.attacks.linear.LinearAttack.run"


class Attacked(BaseException):
    """Not an Exception: an audit survives those."""


def attacked(*_: object, **__: object) -> None:
    raise Attacked


def brighter(answer: torch.Tensor, picture: torch.Tensor) -> torch.Tensor:
    return (answer - picture).mean(dim=(1, 2, 3))


def other_weights() -> sv.SplitModel:
    model = worlds.identity()
    with torch.no_grad():
        next(model.cloud.parameters()).add_(1)
    return model


def again(out: Path, **changes: Any) -> AuditReport:
    arguments: dict[str, Any] = {
        "attacks": ["linear"],
        "out": out,
        "reuse": True,
        "signature": "mine",
        "check_sanity": False,
    } | changes
    return sv.audit(arguments.pop("model", MODEL), arguments.pop("data", DATA), **arguments)


def test_another_budget_is_judged_on_the_finished_audit(
    small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = load_config(data={"name": str(small_data)}, train={"epochs": 1, "batch_size": 32})
    run = train(config, out=tmp_path / "run", device="cpu").path
    audit_command(run, attack=["linear"], device="cpu", budget="mse>=0.0000001")
    before = (run / "audit" / "audit.json").read_text()
    monkeypatch.setattr(RUN, attacked)
    with caplog.at_level(logging.WARNING), pytest.raises(QualityGateError, match="missed"):
        audit_command(run, attack=["linear"], device="cpu", budget="mse>=0.9")
    assert "nothing was attacked again (--again does)" in caplog.text
    assert (run / "audit" / "audit.json").read_text() == before
    with pytest.raises(Attacked):
        audit_command(run, attack=["linear"], device="cpu", again=True)


def test_the_same_report_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = again(tmp_path)
    monkeypatch.setattr(RUN, attacked)
    second = again(tmp_path)
    assert second.tree == json.loads(json.dumps(first.tree))
    assert second.gallery.tree == first.gallery.tree
    assert second.gallery.pictures.keys() == first.gallery.pictures.keys()
    for name, pictures in first.gallery.pictures.items():
        assert all(torch.equal(second.gallery.pictures[name][index], one) for index, one in pictures.items())


@pytest.mark.parametrize(
    "changes",
    [
        {"reuse": False},
        {"seed": 1},
        {"num_images": 6},
        {"attacks": ["linear", "retrieval"]},
        {"check_sanity": True},
        {"measures": brighter},
        {"model": other_weights()},
        {"signature": "another recipe"},
        {"data": AuditData(aux=worlds.pictures(40, seed=5), test=DATA.test)},
    ],
)
def test_whatever_differs_is_attacked(changes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    again(tmp_path)
    monkeypatch.setattr(RUN, attacked)
    with pytest.raises(Attacked):
        again(tmp_path, **changes)


@pytest.mark.parametrize("name", ["audit.json", "card.json", "gallery.json", "original/00000.png", "failures"])
def test_a_damaged_or_failed_audit_is_attacked_again(name: str, tmp_path: Path) -> None:
    again(tmp_path)
    if name == "failures":
        tree = json.loads((tmp_path / "audit.json").read_text())
        (tmp_path / "audit.json").write_text(json.dumps({**tree, "failures": {"decoder": "no memory"}}))
    else:
        (tmp_path / name).write_text("{}")
        with pytest.raises(RunFolderError, match="no complete audit"):
            AuditReport.load(tmp_path)
    assert again(tmp_path).tree["failures"] == {}
    assert AuditReport.load(tmp_path).attacks["linear"]["mse"] >= 0


def test_without_a_signature_nothing_says_that_the_model_is_the_same(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs signature="):
        again(tmp_path, signature=None)


def test_what_was_kept_of_a_finished_audit_is_forgotten_and_anothers_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kept() -> list[str]:
        return sorted(path.name.split("-")[0] for path in (tmp_path / "partial").glob("*"))

    with monkeypatch.context() as patch:
        patch.setattr("splitveil.audit.api.assemble", attacked)
        with pytest.raises(Attacked):
            again(tmp_path, attacks=["retrieval"], num_images=6)  # long work, say, that goes on tomorrow
    with monkeypatch.context() as patch:
        patch.setattr("splitveil.audit.partial.PartialResults.clear", attacked)
        with pytest.raises(Attacked):  # stopped when audit.json is just written
            again(tmp_path)
    assert kept() == ["linear", "retrieval"]
    monkeypatch.setattr(RUN, attacked)
    again(tmp_path)
    assert kept() == ["retrieval"]
    again(tmp_path, attacks=["retrieval"], num_images=6)
    assert not (tmp_path / "partial").exists()


def test_what_cannot_be_forgotten_does_not_spoil_a_finished_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows does not delete files that are still mapped."""

    unlink = Path.unlink

    def refused(path: Path, missing_ok: bool = False) -> None:
        if path.parent.name == "partial":
            raise PermissionError
        unlink(path, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr("splitveil.audit.api.assemble", attacked)
        with pytest.raises(Attacked):
            again(tmp_path)
    monkeypatch.setattr(Path, "unlink", refused)
    assert again(tmp_path).worst_case["mse"] >= 0
    assert [*(tmp_path / "partial").iterdir()]
