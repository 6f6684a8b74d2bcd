"""The demo, end to end, between two bounds: too good fails as well as too bad."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from splitveil.cli import main


@pytest.mark.slow
def test_the_fast_demo_shows_what_it_claims(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--fast", "--out", str(tmp_path / "demo"), "--json"])
    assert stop.value.code == 0
    result = json.loads(capsys.readouterr().out)
    undefended, defended = result["runs"]["undefended"], result["runs"]["defended"]
    assert 0.78 < undefended["accuracy"] < 0.92
    assert undefended["accuracy"] - 0.08 < defended["accuracy"] < 0.92
    assert 0.009 < undefended["mse"] < 0.030
    assert 1.3 < defended["mse"] / undefended["mse"] < 4.0
    for run in (undefended, defended):
        assert run["worst_case_mse"] <= run["mse"] < run["floor_mse"]
        assert 0.075 < run["floor_mse"] < 0.095
    page = Path(result["report"]).read_text(encoding="utf-8")
    assert f"{defended['accuracy']:.1%}".replace("%", "") in page

    # a second call finds everything finished, changes no number, and rewrites the page
    Path(result["report"]).unlink()
    with pytest.raises(SystemExit):
        main(["demo", "--fast", "--out", str(tmp_path / "demo"), "--json"])
    assert json.loads(capsys.readouterr().out) == result
    assert Path(result["report"]).exists()
