"""`splitveil audit RUN` on a run that was really trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from splitveil.audit.run import audit_run
from splitveil.cli.audit import audit, table
from splitveil.core.config import load_config
from splitveil.core.errors import QualityGateError, RunFolderError, UnknownNameError
from splitveil.training.api import train


@pytest.fixture
def run(small_data: Path, tmp_path: Path) -> Path:
    config = load_config(
        data={"name": str(small_data)},
        train={"epochs": 2, "batch_size": 32},
        defence={"noise": {"sigma": 0.05}},
        surrogate={"name": "none"},
        audit={"epochs": 2},
    )
    return train(config, out=tmp_path / "run", device="cpu").path


def test_a_run_is_audited_as_its_recipe_says(run: Path) -> None:
    report = audit_run(run, device="cpu")
    tree = json.loads((run / "audit" / "audit.json").read_text())
    assert tree["tier"] == "smoke"
    assert set(tree["attacks"]) == {"decoder", "linear", "average", "retrieval"}
    assert tree["attacks"]["decoder"]["epochs"] == 2
    assert tree["attacks"]["average"]["repeats"] == 8
    assert tree["worst_case"]["mse"] <= tree["worst_case_once"]["mse"]
    assert tree["bound"]["sigma"] == pytest.approx(0.05)
    assert "config:" in tree["signature"]
    assert (run / "audit" / "card.json").exists()
    text = table(report.tree)
    assert "floor: mean image" in text
    assert "worst case per picture" in text
    assert tree["signature"] in text


def test_the_verb_prints_json_and_holds_the_budget(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    audit(run, attack=["linear"], device="cpu", budget="mse>=0.0000001", json_=True)
    assert json.loads(capsys.readouterr().out)["attacks"]["linear"]["mse"] > 0
    with pytest.raises(QualityGateError, match="missed"):
        audit(run, attack=["linear"], device="cpu", budget="mse>=0.9", json_=True)


def test_bad_calls_are_one_sentence(run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no run folder"):
        audit(tmp_path / "nowhere")
    with pytest.raises(UnknownNameError, match="training_time"):
        audit(run, mode="trainig_time", device="cpu")
    with pytest.raises(UnknownNameError, match="standard"):
        audit(run, tier="standart", device="cpu")
