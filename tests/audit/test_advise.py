"""The split-point advisor."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from splitveil.audit.advise import CutAdvice, advise, all_cuts, mark_pareto
from splitveil.audit.run import audit_run
from splitveil.cli.advise import table
from splitveil.core.config import load_config
from splitveil.core.errors import ConfigError


def cut(number: int, mse: float, accuracy: float, size: int, work: int) -> CutAdvice:
    return CutAdvice(number, (1, 2, 2), accuracy, mse, 0.5, 0.09, size, work, 10)


def test_pareto_set_by_hand() -> None:
    found = mark_pareto(
        [
            cut(1, mse=0.01, accuracy=0.9, size=100, work=10),  # least work
            cut(2, mse=0.02, accuracy=0.9, size=100, work=20),  # private for some work
            cut(3, mse=0.02, accuracy=0.8, size=100, work=20),  # worse than 2 in one thing, better in none
            cut(4, mse=0.02, accuracy=0.9, size=100, work=20),  # as good as 2 in everything: both stay
            cut(5, mse=0.01, accuracy=0.8, size=50, work=30),  # fewest bytes
            cut(6, mse=0.01, accuracy=0.8, size=200, work=30),  # more of them than 5
        ]
    )
    stars = [True, True, False, True, True, False]
    assert [one.pareto for one in found] == stars
    lines = table(found).splitlines()
    assert [("*" in line) for line in lines[1:7]] == stars


def test_cuts_at_which_no_attack_beat_the_guess_are_named() -> None:
    seen, blind = cut(1, mse=0.05, accuracy=0.9, size=1, work=1), cut(2, mse=0.12, accuracy=0.9, size=1, work=1)
    assert "note" not in table([seen])
    assert "at cut 2 no attack beat the guess" in table([seen, blind])


def test_a_cut_at_which_nothing_was_learned_is_no_advice() -> None:
    """However private and cheap it is; and it takes the star from no cut that works."""
    idle = replace(cut(3, mse=0.08, accuracy=0.1, size=1, work=1), works=False)
    found = mark_pareto([cut(1, mse=0.01, accuracy=0.1, size=9, work=9), idle])
    assert [one.pareto for one in found] == [True, False]
    assert "at cut 3 the model is no better" in table(found)
    assert "no better" not in table(found[:1])


def test_every_cut_of_a_network_is_known() -> None:
    assert all_cuts(load_config()) == [1, 2, 3, 4, 5]
    assert all_cuts(load_config(model={"name": "vgg11"})) == list(range(1, 13))


def test_advise_trains_and_attacks_each_cut(small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(
        data={"name": str(small_data)}, train={"epochs": 3, "batch_size": 32}, surrogate={"name": "none"}
    )
    told: list[tuple[str, int]] = []

    def progress(what: str, done: int, total: int) -> None:
        told.append((what, done))

    found = advise(config, tmp_path / "cuts", cuts=[2, 4], epochs=2, device="cpu", progress=progress)
    assert told[:4] == [("cut 2", 0), ("cut 2: epoch 1/2", 0), ("cut 2: epoch 2/2", 0), ("cut 2: attack", 0)]
    assert [what for what, _ in told if "decoder" in what]  # the attack's own progress
    assert told[-1] == ("done", 2)
    assert [one.cut for one in found] == [2, 4]
    assert found[0].feature_shape == (16, 4, 4)
    assert found[0].bytes_per_image == 16 * 4 * 4 * 4
    assert found[1].edge_macs > found[0].edge_macs
    assert all(0 < one.mse < 1 for one in found)
    assert (tmp_path / "cuts" / "cut-04" / "audit" / "audit.json").exists()
    tree = json.loads((tmp_path / "cuts" / "cut-04" / "audit" / "audit.json").read_text())
    assert set(tree["attacks"]) == {"decoder", "linear"}
    assert found[1].mse <= min(entry["mse"] for entry in tree["attacks"].values())
    worst, floor = tree["worst_case"], tree["floors"]["mean_image"]
    assert (found[1].mse, found[1].ssim, found[1].floor_mse) == (worst["mse"], worst["ssim"], floor["mse"])
    result = json.loads((tmp_path / "cuts" / "cut-04" / "result.json").read_text())
    assert found[1].accuracy == result["accuracy_late"]
    audit_run(tmp_path / "cuts" / "cut-04", attacks=["retrieval"], sanity=False, device="cpu")  # a closer look
    again = advise(config, tmp_path / "cuts", cuts=[2, 4], epochs=2, device="cpu")
    assert again == found  # all cuts by the same attacks
    with monkeypatch.context() as patch:
        patch.setattr("splitveil.audit.api.find", None)  # nothing is attacked once more
        assert advise(config, tmp_path / "cuts", cuts=[2, 4], epochs=2, device="cpu") == found
    with pytest.raises(ConfigError, match=r"train\.epochs was 2 and is 3.* choose another folder with --out"):
        advise(config, tmp_path / "cuts", cuts=[2], device="cpu")


def test_an_impossible_cut_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no cut 9"):
        advise(load_config(), tmp_path, cuts=[9])


def test_a_refused_call_leaves_nothing_behind(small_data: Path, tmp_path: Path) -> None:
    config = load_config(data={"name": str(small_data)}, train={"batch_size": 100_000})
    before = set(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match="larger than the"):
        advise(config, tmp_path / "runs" / "cuts", cuts=[2], device="cpu")
    assert set(tmp_path.rglob("*")) == before


def test_what_holds_for_every_cut_is_said_once(
    small_data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = load_config(
        data={"name": str(small_data)}, train={"epochs": 1, "batch_size": 32}, surrogate={"name": "gated"}
    )
    advise(config, tmp_path, cuts=[2, 4], device="cpu")
    assert len([line for line in caplog.messages if "leaves none of 1 epochs" in line]) == 1
    for name in ("cut-02", "cut-04"):
        assert (tmp_path / name / "train.log").read_text().count("leaves none of 1 epochs") == 1
    logging.getLogger("splitveil.training").warning("afterwards")
    logging.getLogger("splitveil.training").warning("afterwards")
    assert caplog.messages.count("afterwards") == 2
