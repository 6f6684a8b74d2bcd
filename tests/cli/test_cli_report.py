"""The verb `report`: thin over build_report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from splitveil.cli.report import report
from splitveil.core.errors import UsageError

app = typer.Typer()
app.command()(report)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "result.json").write_text('{"accuracy_late": 0.5}')
    return folder


def test_writes_the_page_and_names_it(run, tmp_path):
    out = tmp_path / "page.html"
    result = CliRunner().invoke(app, [str(run), "--out", str(out), "--lang", "zh", "--title", "Mine"])
    assert result.exit_code == 0, result.output
    assert str(out) in result.output.replace("\n", "")
    content = out.read_text(encoding="utf-8")
    assert '<html lang="zh">' in content
    assert "<title>Mine</title>" in content


def test_json_for_machines(run, tmp_path):
    out = tmp_path / "page.html"
    result = CliRunner().invoke(app, [str(run), "--out", str(out), "--json"])
    assert json.loads(result.output) == {"report": str(out), "bytes": out.stat().st_size}


def test_no_run_folder_is_a_usage_error(tmp_path):
    result = CliRunner().invoke(app, [str(tmp_path), "--out", str(tmp_path / "page.html")])
    assert isinstance(result.exception, UsageError)


def test_help_shows_an_example():
    assert "splitveil report runs/demo" in CliRunner().invoke(app, ["--help"]).output
