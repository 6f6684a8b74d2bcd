"""Files of a run that no longer belong together are found by what signatures and cards pin."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from tests import worlds

import splitveil as sv
from splitveil.audit.subjects import AuditData
from splitveil.core import pins
from splitveil.core.config import load_config
from splitveil.core.manifest import signature
from splitveil.core.pins import other_settings
from splitveil.experiments.pinned import changed_audit, other_accuracy


@pytest.fixture
def settings(tmp_path: Path) -> tuple[Path, str]:
    """A config.toml as training writes it, and the signature of that configuration."""
    config = load_config("demo-fashion-mini")
    path = tmp_path / "config.toml"
    path.write_text(config.to_toml(), encoding="utf-8")
    return path, signature(config, data="91bd03aa")


def test_settings_fit_their_own_signature(settings: tuple[Path, str]) -> None:
    path, line = settings
    assert not other_settings(path, line, f"{line}|audit|tier:smoke")
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))  # a copy by another system
    assert not other_settings(path, line)


def test_changed_settings_do_not_whichever_signature_says_so(settings: tuple[Path, str]) -> None:
    path, line = settings
    old = path.read_text(encoding="utf-8")
    path.write_text(old.replace("sigma = 0.1", "sigma = 5.0"), encoding="utf-8")
    assert path.read_text(encoding="utf-8") != old
    assert other_settings(path, line)
    assert other_settings(path, None, line)
    path.write_text("", encoding="utf-8")
    assert other_settings(path, line)


def test_what_is_no_toml_says_nothing(settings: tuple[Path, str]) -> None:
    path, line = settings
    path.write_text("sigma = = 5.0", encoding="utf-8")
    assert not other_settings(path, line)


def test_settings_that_fit_are_not_parsed(settings: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    path, line = settings
    parsed: list[str] = []
    monkeypatch.setattr(pins.tomllib, "loads", parsed.append)
    assert not other_settings(path, line)
    assert parsed == []
    path.write_text("seed = 5\n", encoding="utf-8")
    assert other_settings(path, line)
    assert parsed == ["seed = 5\n"]


@pytest.mark.parametrize("line", [None, "", 3, "splitveil:0|config:1", "own:Net|torch:2.13.0"])
def test_without_a_pin_nothing_is_claimed(settings: tuple[Path, str], line: Any) -> None:
    assert not other_settings(settings[0], line)
    assert not other_settings(settings[0].with_name("nowhere.toml"), settings[1])


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audited")
    world = AuditData(
        aux=worlds.pictures(60, seed=1), test=worlds.pictures(30, seed=2), train=worlds.pictures(60, seed=3)
    )
    sv.audit(worlds.identity(), world, attacks=["linear", "attribute"], check_sanity=False, out=folder)
    return folder


def edited(tree: dict[str, Any], *keys: str, value: Any) -> dict[str, Any]:
    """A copy of the tree with another value at one place."""
    copy = json.loads(json.dumps(tree))
    place = copy
    for key in keys[:-1]:
        place = place[key]
    assert place[keys[-1]] != value
    place[keys[-1]] = value
    return copy


def test_an_audit_fits_its_card_and_an_edited_one_does_not(audited: Path) -> None:
    tree = json.loads((audited / "audit.json").read_text(encoding="utf-8"))
    card = audited / "card.json"
    assert not changed_audit(tree, card)
    for keys in (("worst_case", "mse"), ("attacks", "linear", "ssim"), ("floors", "mean_image", "mse"), ("tier",)):
        assert changed_audit(edited(tree, *keys, value=0.7), card), keys
    found = tree["inference"]["attribute"]["findings"]["class from feature"]
    assert changed_audit(
        {**tree, "inference": {"attribute": {"findings": {"class from feature": {**found, "rate": 0.001}}}}}, card
    )
    assert not changed_audit({**tree, "warnings": tree["warnings"], "new": 1}, card)  # keys that a card has not


READ_BY_REPORTS = [
    "data",
    "protocol",
    "mode",
    "tier",
    "num_images",
    "accuracy",
    "accuracy_of",
    "works",
    "floors",
    "attacks",
    "inference",
    "worst_case",
    "worst_case_once",
    "worst_decile",
    "per_class",
    "per_group",
    "bound",
    "extra",
    "sanity",
    "verdict",
    "failures",
    "skipped",
    "warnings",
    "departures",
    "signature",
]


@pytest.mark.parametrize("key", READ_BY_REPORTS)
def test_whatever_of_an_audit_reports_rest_on_is_found_out_when_it_was_changed_or_taken_away(
    audited: Path, key: str
) -> None:
    tree, written = (json.loads((audited / name).read_text(encoding="utf-8")) for name in ("audit.json", "card.json"))
    assert not changed_audit(tree, audited / "card.json")
    assert changed_audit({**tree, key: "another"}, audited / "card.json")
    assert changed_audit({name: value for name, value in tree.items() if name != key}, audited / "card.json")
    assert key in written


def test_a_card_has_the_scores_of_everything_with_their_intervals(audited: Path) -> None:
    tree, written = (json.loads((audited / name).read_text(encoding="utf-8")) for name in ("audit.json", "card.json"))
    shown = {"mse", "ssim", "psnr", "mse_ci95", "ssim_ci95", "psnr_ci95"}
    pairs = [(tree["worst_case"], written["worst_case"]), (tree["worst_case_once"], written["worst_case_once"])]
    pairs += [(tree["floors"][name], entry) for name, entry in written["floors"].items()]
    pairs += [(tree["attacks"]["linear"], written["attacks"]["linear"])]
    for stored, entry in pairs:
        assert {key: entry[key] for key in shown} == {key: stored[key] for key in shown}
    for key in ("recon_acc", "threat_model", "num_images"):
        assert written["attacks"]["linear"][key] == tree["attacks"]["linear"][key]
    assert written["worst_decile"]["mse"] == tree["worst_decile"]["mse"] < tree["worst_case"]["mse"]
    assert set(written["floors"]) == {"mean_image", "class_mean"}
    assert set(written["per_class"]) == set(tree["per_class"])


def test_a_card_that_was_edited_along_is_found_by_its_checksum(audited: Path, tmp_path: Path) -> None:
    tree, written = (json.loads((audited / name).read_text(encoding="utf-8")) for name in ("audit.json", "card.json"))
    forged = tmp_path / "card.json"
    forged.write_text(json.dumps(edited(written, "worst_case", "mse", value=0.7)), encoding="utf-8")
    assert changed_audit(edited(tree, "worst_case", "mse", value=0.7), forged)
    bare = {key: value for key, value in edited(written, "worst_case", "mse", value=0.7).items() if key != "sha256"}
    forged.write_text(json.dumps(bare), encoding="utf-8")
    assert changed_audit(edited(tree, "worst_case", "mse", value=0.7), forged)
    forged.write_text("{", encoding="utf-8")
    assert changed_audit(tree, forged)
    assert not changed_audit(tree, tmp_path / "missing.json")


def test_a_page_that_was_sealed_long_ago_is_still_intact() -> None:
    """Cards are kept: another way to write the same numbers would make all of them look edited."""
    content = {"tier": "smoke", "attacks": {"linear": {"mse": 0.25, "ssim": None}}, "num_images": 30}
    written = '{"attacks":{"linear":{"mse":0.25,"ssim":null}},"num_images":30,"tier":"smoke"}'
    sealed = {**content, "sha256": hashlib.sha256(written.encode()).hexdigest()}
    assert pins.sealed(content) == sealed
    assert pins.intact(sealed)
    assert not pins.intact({**sealed, "num_images": 31})


def test_the_length_of_a_pin_is_that_of_a_signature(settings: tuple[Path, str]) -> None:
    digest = hashlib.sha256(settings[0].read_bytes()).hexdigest()
    assert f"|config:{digest[:10]}|" in settings[1]


@pytest.mark.parametrize(
    ("epochs", "late"), [(1, [0.5]), (15, [0.5]), (16, [0.25, 0.5]), (24, [0.75, 0.25, 0.5])], ids=str
)
def test_the_accuracy_in_a_result_is_that_of_the_last_eighth_of_the_epochs(epochs: int, late: list[float]) -> None:
    tested = [0.125] * (epochs - len(late)) + late
    rows = [{"epoch": epoch, "test_accuracy": value} for epoch, value in enumerate(tested, 1)]
    right = {"accuracy_late": sum(late) / len(late), "accuracy_last": 0.5}
    assert not other_accuracy(right, rows, {})
    assert other_accuracy({**right, "accuracy_late": right["accuracy_late"] + 0.001}, rows, {})
    assert other_accuracy({**right, "accuracy_last": 0.501}, rows, {})
    assert other_accuracy({**right, "accuracy_last": 0.499}, rows, {})


@pytest.mark.parametrize(
    ("select", "other"), [("last", True), ("val_best", False), ("test_best", False), (None, False)]
)
def test_the_accuracy_of_the_stored_weights_is_the_last_epochs_unless_one_is_selected(
    select: str | None, other: bool
) -> None:
    rows, config = [{"epoch": 1, "test_accuracy": 0.5}], {"train": {"select": select}}
    assert not other_accuracy({"accuracy_kept": 0.5}, rows, config)
    assert other_accuracy({"accuracy_kept": 0.501}, rows, config) is other


def test_without_tested_epochs_nobody_knows_the_accuracy() -> None:
    assert not other_accuracy({"accuracy_late": 0.9}, [], {})
    assert not other_accuracy({"accuracy_late": 0.9}, [{"epoch": 1, "accuracy": 0.1, "test_accuracy": None}], {})
    assert not other_accuracy({"accuracy_late": "?"}, [{"epoch": 1, "test_accuracy": 0.1}], {})
