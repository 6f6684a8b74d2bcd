"""Run folders: what their files say, and what is said of those that are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from splitveil.core.errors import NotARunError, RunFolderError
from splitveil.core.files import append_line
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


def test_metrics_survive_a_torn_line_and_can_be_cut_back(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for epoch in (1, 2, 3):
        folder.append_metrics({"epoch": epoch})
    append_line(tmp_path / "metrics.jsonl", "[" * 100_000)
    append_line(tmp_path / "metrics.jsonl", '{"epoch": 4, "acc')
    assert [row["epoch"] for row in folder.metrics()] == [1, 2, 3]
    folder.truncate_metrics(2)
    assert [row["epoch"] for row in folder.metrics()] == [1, 2]


@pytest.mark.parametrize("epoch", ["null", '"2"', "[]", "{}", "NaN"])
def test_a_row_of_no_epoch_is_cut_away(tmp_path: Path, epoch: str) -> None:
    append_line(tmp_path / "metrics.jsonl", f'{{"epoch": 1}}\n{{"epoch": {epoch}}}\n{{"accuracy": 1}}\n{{"epoch": 2}}')
    RunFolder(tmp_path).truncate_metrics(2)
    assert RunFolder(tmp_path).metrics() == [{"epoch": 1}, {"epoch": 2}]


def test_what_is_not_a_run_folder_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "config.toml").touch()
    with pytest.raises(RunFolderError, match=r"config.toml is a file, but a run is a folder. Try its folder: .*"):
        RunFolder.open(tmp_path / "config.toml")
    (tmp_path / "config.toml").unlink()
    with pytest.raises(RunFolderError, match="There is no run folder"):
        RunFolder.open(tmp_path / "absent")
    with pytest.raises(RunFolderError, match=r"no config\.toml"):
        RunFolder.open(tmp_path)
    (tmp_path / "result.json").write_text("{")
    with pytest.raises(RunFolderError, match="damaged"):
        RunFolder(tmp_path).read_json("result.json")


@pytest.mark.parametrize("content", ["[1, 2]", "3", "null", '"done"'])
def test_a_file_that_is_json_but_no_table_is_damaged(tmp_path: Path, content: str) -> None:
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(RunFolderError, match=r"result\.json is damaged: it is no table"):
        RunFolder(tmp_path).read_json("result.json")
