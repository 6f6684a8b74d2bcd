"""A path that does not exist: which folder was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from splitveil.core.errors import NotARunError
from splitveil.core.nearest_folder import nearest_folder
from splitveil.core.run_folder import RunFolder


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("artefacts/mine", "artefact-notes", "runs/first", "runs/second"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "runs" / "firsts").touch()  # a file is no folder
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("artefact/mine", "artefacts/mine"),
        ("artefacts/mien", "artefacts/mine"),
        ("artefact/mien", "artefacts/mine"),
        ("artefacts/mine/", "artefacts/mine"),
        ("runs/frist", "runs/first"),
        ("run/second", "runs/second"),
        ("./run/second", "runs/second"),
        ("runs/../run/second", "runs/../runs/second"),
        ("runs/other", None),
        ("elsewhere/mine", None),
        ("runs/first/below", None),
        ("runs/firsts/x", None),
        ("", "."),
    ],
)
def test_the_nearest_folder(given: str, meant: str | None) -> None:
    found = nearest_folder(given)
    assert found == (None if meant is None else Path(meant))


def test_of_an_absolute_path_and_of_one_that_nobody_may_list(tmp_path: Path) -> None:
    assert nearest_folder(tmp_path / "run" / "first") == tmp_path / "runs" / "first"
    assert nearest_folder("x" * 5000) is None


def test_a_run_that_is_not_there_names_the_one_that_is() -> None:
    with pytest.raises(NotARunError, match="There is no run folder runs/frist") as error:
        RunFolder.open("runs/frist")
    assert error.value.hint == "Did you mean runs/first?"
    with pytest.raises(NotARunError) as error:
        RunFolder.open("runs/other")
    assert error.value.hint.startswith("Make one with: splitveil train")
