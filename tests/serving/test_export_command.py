"""`splitveil export` and `splitveil audit ARTEFACT` as a user types them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from splitveil.cli import main
from splitveil.experiments.discover import find_runs


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    told = capsys.readouterr()
    return int(end.value.code or 0), told.out, told.err


def test_export_and_audit(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(run, tmp_path / "runs" / "mine")
    code, out, err = call(capsys, "export", tmp_path / "runs" / "mine")
    assert code == 0
    artefact = tmp_path / "runs" / "mine" / "artefact"
    assert f"The artefact is in {artefact}" in out
    assert "drawn on the device: normal [16, 4, 4]" in out
    assert "not audited" in out
    assert "constant folding" not in err  # the exporter's own chatter
    code, _, err = call(capsys, "export", tmp_path / "runs" / "mine")
    assert code == 2
    assert "exists already" in err
    code, out, _ = call(capsys, "audit", artefact, "--attack", "linear", "--no-sanity", "--out", tmp_path / "aud")
    assert code == 0
    assert "linear" in out
    assert (tmp_path / "aud" / "audit" / "audit.json").is_file()
    code, _, err = call(capsys, "audit", artefact, "--at", "layer")
    assert code == 2
    assert "--at is for models of your own" in err
    code, _, err = call(capsys, "train", "demo-fashion-mini", "--set", f"train.init_from={artefact}", "--dry-run")
    assert code == 2
    assert "is an exported artefact, not a run" in err
    assert find_runs([tmp_path / "runs"]) == [tmp_path / "runs" / "mine"]  # an artefact is not listed as a run
    (artefact / "edge.onnx").write_bytes(b"x")
    code, _, err = call(capsys, "audit", artefact)
    assert code == 1
    assert "edge.onnx is damaged" in err


@pytest.mark.usefixtures("traced")
def test_json_is_the_manifest(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "export", run, "--out", tmp_path / "artefact", "--json")
    assert code == 0
    assert json.loads(out) == json.loads((tmp_path / "artefact" / "manifest.json").read_text())


def test_what_is_no_run_is_a_wrong_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "export", tmp_path / "nowhere")
    assert code == 2
    assert "There is no run folder" in err
    code, _, err = call(capsys, "export", tmp_path)
    assert code == 2
    assert "no config.toml" in err
