"""What a run folder says about weights that are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from splitveil.core.errors import NotARunError, RunFolderError
from splitveil.core.run_folder import RunFolder


def test_weights_that_an_export_left_out_are_not_called_unfinished(tmp_path: Path) -> None:
    (tmp_path / "config.toml").touch()
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(RunFolderError, match="weights are not here") as found:
        RunFolder(tmp_path).weights()
    assert "--export" in found.value.message
    assert "--checkpoints none" in found.value.message
    assert f"splitveil train {tmp_path / 'config.toml'} --out NEW_DIR" in (found.value.hint or "")


def test_a_run_that_has_not_ended_is_to_be_finished(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="has no finished model") as found:
        RunFolder(tmp_path).weights()
    assert f"--out {tmp_path} --resume" in (found.value.hint or "")


def test_weights_that_are_there(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints" / "model.safetensors"
    path.parent.mkdir()
    path.touch()
    assert RunFolder(tmp_path).weights() == path


def test_a_folder_with_an_audit_alone_is_told_from_a_run_that_lost_its_settings(tmp_path: Path) -> None:
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "audit.json").write_text("{}", encoding="utf-8")
    with pytest.raises(
        NotARunError, match=r"holds only an audit of a model that was not trained here\. Show it with: "
    ):
        RunFolder.open(tmp_path)
    (tmp_path / "result.json").write_text("{}", encoding="utf-8")
    with pytest.raises(NotARunError, match=r"has no config\.toml"):
        RunFolder.open(tmp_path)
