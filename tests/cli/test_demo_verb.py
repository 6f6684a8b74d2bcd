"""`splitveil demo` on pictures of one's own, and beside runs that were there before."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from splitveil.audit.run import audit_run
from splitveil.cli import main
from splitveil.core.config import Config, load_config
from splitveil.core.run_folder import RunFolder


def demo(capsys: pytest.CaptureFixture[str], *args: str) -> dict:
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--fast", "--json", *args])
    said = capsys.readouterr()
    assert stop.value.code == 0, said.err
    return json.loads(said.out)


def test_own_pictures_get_both_runs_and_a_report(
    small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    keys = ("train.epochs=1", "surrogate.name=rate", "audit.epochs=1", "audit.sanity=false", "audit.num_images=20")
    short = ["--data", "small.npz", *(word for key in keys for word in ("--set", key))]
    found = demo(capsys, *short)
    assert found["report"] == "runs/demo-small/report.html"
    assert Path(found["report"]).is_file()
    opened = {name: RunFolder.open(row["run"]).config() for name, row in found["runs"].items()}
    assert [config.data.name for config in opened.values()] == ["small.npz", "small.npz"]
    assert [config.train.epochs for config in opened.values()] == [1, 1]
    assert opened["undefended"].surrogate is None  # whatever defends is set for the other one alone
    assert opened["defended"].surrogate.name == "rate"
    assert not found["runs"]["defended"]["works"]  # after a single epoch

    # an audit of the user's own is kept, and not shown for the demo's, which is made anew once
    audit_run(found["runs"]["defended"]["run"], attacks=["decoder"], epochs=2)
    assert demo(capsys, *short) == found
    assert Path(found["runs"]["defended"]["run"], "audit", "earlier", "2", "audit.json").is_file()
    monkeypatch.setattr("splitveil.attacks.decoder.DecoderAttack.run", None)
    assert demo(capsys, *short) == found


def test_a_run_with_other_settings_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`splitveil train ... --out runs/defended`, then `splitveil demo --out runs`."""

    def trained(config: Config, **_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("splitveil.training.api.train", trained)
    for number in (1, 2):
        mine = tmp_path / "undefended"
        mine.mkdir()
        RunFolder(mine).write_config(load_config(seed=number))
        (mine / "weights").write_text(f"of days {number}")
        with pytest.raises(SystemExit):
            main(["demo", "--out", str(tmp_path)])
        kept = tmp_path / ".aside" / f"undefended-{number}"
        assert f"{mine} held a run with other settings, which is now in {kept}." in capsys.readouterr().err
        assert (kept / "weights").read_text() == f"of days {number}"
        assert not mine.exists()


@pytest.mark.parametrize(("fast", "advice"), [(["--fast"], "leave out --fast"), ([], "defended --tier standard")])
def test_an_attack_that_guessing_beats_is_not_taken_for_a_safe_model(
    fast: list[str],
    advice: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors = {"undefended": 0.02, "defended": 0.08}

    def one_run(name: str, *_: object) -> dict:
        row = {"accuracy": 0.9, "mse": errors[name], "ssim": 0.4, "attacks": ["decoder"], "works": True}
        return {**row, "worst_case_mse": errors[name], "floor_mse": 0.05}

    monkeypatch.setattr(sys.modules["splitveil.cli.demo"], "_one_run", one_run)
    monkeypatch.setattr("splitveil.report.build_report", lambda runs, page: page)
    for told in (True, False):
        with pytest.raises(SystemExit):
            main(["demo", "--out", str(tmp_path), *fast])
        said = capsys.readouterr().out
        assert ("note: no attack beat that guess: defended; beyond it" in said) == told
        assert (advice in said) == told
        errors["defended"] = 0.04
