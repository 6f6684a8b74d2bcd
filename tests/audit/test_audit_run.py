"""`splitveil audit RUN` on a run that was really trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from splitveil.audit import run as run_module
from splitveil.audit.run import audit_run
from splitveil.audit.table import table
from splitveil.cli.audit import audit
from splitveil.core.config import load_config
from splitveil.core.errors import QualityGateError, RunFolderError, UnknownNameError, UsageError
from splitveil.training.api import train
from splitveil.training.loaded_run import load_run


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


@pytest.mark.parametrize("by_recipe", [False, True])
def test_a_budget_without_the_sanity_check_is_refused_before_any_attack(
    by_recipe: bool, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There would be no verdict, and nothing to hold the budget against."""
    monkeypatch.setattr("splitveil.attacks.linear.LinearAttack.run", lambda *_: pytest.fail("an attack began"))
    if by_recipe:
        recipe = run / "config.toml"
        recipe.write_text(recipe.read_text().replace("sanity = true", "sanity = false"))
    with pytest.raises(UsageError, match="A budget needs the sanity check") as caught:
        audit(run, attack=["linear"], device="cpu", budget="mse>=0.1", sanity=None if by_recipe else False)
    assert "--sanity" in caught.value.hint


@pytest.mark.parametrize("names", [["attribute"], ["attribute", "membership"]])
def test_so_is_a_budget_beside_attacks_that_make_no_pictures(
    names: list[str], run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("splitveil.audit.run.audit", lambda *_, **__: pytest.fail("the audit began"))
    with pytest.raises(UsageError, match=f"A budget needs an attack that makes pictures.* {' and '.join(names)} do"):
        audit(run, attack=names, device="cpu", budget="mse>=0.1")


def test_the_recipe_chooses_attacks_and_the_call_may_narrow_them(small_data: Path, tmp_path: Path) -> None:
    config = load_config(
        data={"name": str(small_data)},
        train={"epochs": 1, "batch_size": 32},
        audit={"attacks": {"linear": {}, "decoder": {"width": 8, "epochs": 3}}, "sanity": False},
    )
    path = train(config, out=tmp_path / "chosen", device="cpu").path
    tree = audit_run(path, device="cpu").tree
    assert list(tree["attacks"]) == ["linear", "decoder"]
    assert tree["sanity"] is None
    assert tree["attacks"]["decoder"]["epochs"] == 3
    narrowed = audit_run(path, attacks=["decoder"], sanity=True, device="cpu").tree
    assert list(narrowed["attacks"]) == ["decoder"]
    assert narrowed["attacks"]["decoder"]["mse"] == tree["attacks"]["decoder"]["mse"]  # the recipe's options still hold
    assert narrowed["sanity"] is not None


def test_what_answers_is_audited_with_the_seed_of_the_run(
    small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC 2.3: where the surrogate brings the classifier, the cloud half was never trained and is not asked."""
    config = load_config(
        seed=7,
        data={"name": str(small_data)},
        train={"epochs": 1, "batch_size": 32},
        defence={"bottleneck": {"channels": 4}, "noise": {"sigma": 0.05}},
        surrogate={"name": "slot_cross", "mode": "faithful", "num_heads": 2, "num_slots": 2},
    )
    path = train(config, out=tmp_path / "own", device="cpu").path
    asked = []
    monkeypatch.setattr(run_module, "audit", lambda model, data, **settings: asked.append((model, settings)))
    audit_run(path, device="cpu")
    ((model, settings),) = asked
    loaded = load_run(path, "cpu")
    sent = torch.rand(4, *loaded.model.feature_shape)
    with torch.no_grad():
        assert torch.equal(model.cloud(sent), loaded.surrogate.classify(sent).logits)  # type: ignore[union-attr,operator]
    assert list(model.defences) == ["bottleneck", "noise"]
    assert (settings["seed"], settings["mode"]) == (7, "training_time")


def test_an_audit_in_another_mode_stands_beside_the_recipes_own(run: Path) -> None:
    own = audit_run(run, attacks=["linear"], sanity=False, device="cpu").tree
    other = audit_run(run, attacks=["linear"], mode="inference_time", sanity=False, device="cpu").tree
    assert json.loads((run / "audit" / "audit.json").read_text()) == own
    assert json.loads((run / "audit-inference_time" / "audit.json").read_text()) == other
    assert (own["mode"], other["mode"]) == ("training_time", "inference_time")


def test_bad_calls_are_one_sentence(run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no run folder"):
        audit(tmp_path / "nowhere")
    with pytest.raises(UnknownNameError, match="training_time"):
        audit(run, mode="trainig_time", device="cpu")
    with pytest.raises(UnknownNameError, match="standard"):
        audit(run, tier="standart", device="cpu")
