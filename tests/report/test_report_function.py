"""`sv.report`: what `splitveil report` does, from Python."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import splitveil as sv
from splitveil.core.errors import InputError, UsageError
from splitveil.core.run_folder import RunFolder
from splitveil.report import build_report


def test_one_run_or_several_by_name(tmp_path: Path, write_run: Callable[..., Path], monkeypatch) -> None:
    for name in ("one", "two"):
        write_run(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert sv.report("one") == Path("report.html")
    assert "two" not in Path("report.html").read_text(encoding="utf-8").partition("</title>")[0]
    page = sv.report(["one", Path("two")], "both.html", title="Both of them")
    text = page.read_text(encoding="utf-8")
    assert "<title>Both of them" in text
    assert "splitveil report one two --out both.html" in text


def test_what_training_gives_back_is_a_path(tmp_path: Path, write_run: Callable[..., Path]) -> None:
    run = RunFolder.open(write_run(tmp_path / "one"))
    pages = [sv.report(given, tmp_path / "one.html").read_bytes() for given in (run.path, run, [run])]
    assert pages[0] == pages[1] == pages[2]


@pytest.mark.parametrize("given", [3, [3], None])
def test_what_is_no_path_is_told_in_a_sentence(given: object) -> None:
    with pytest.raises(InputError, match=r"A report needs the paths of run folders, not a (int|NoneType)"):
        sv.report(given)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["report.pdf", "table.tex", "one/result.json"])
def test_a_name_of_another_format_is_refused(tmp_path: Path, write_run: Callable[..., Path], name: str) -> None:
    write_run(tmp_path / "one")
    out = tmp_path / name
    before = out.read_bytes() if out.exists() else None
    with pytest.raises(UsageError, match=rf"'{out.name}' does not look like.* Call it {out.stem}\.html"):
        sv.report(tmp_path / "one", out)
    assert (out.read_bytes() if out.exists() else None) == before


@pytest.mark.parametrize("name", ["page.HTM", "page"])
def test_other_names_of_pages_are_taken(tmp_path: Path, write_run: Callable[..., Path], name: str) -> None:
    assert sv.report(write_run(tmp_path / "one"), tmp_path / name).read_text(encoding="utf-8").startswith("<!")


def test_signature_and_docstring_are_the_functions() -> None:
    assert inspect.signature(sv.report) == inspect.signature(build_report)
    assert (inspect.getdoc(sv.report) or "").startswith("report(runs: ")


def test_it_needs_no_torch() -> None:
    code = "import sys, splitveil as sv; callable(sv.report) or sys.exit(2); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
