"""A path that does not exist: which folder was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from splitveil.core.config import load_config
from splitveil.core.errors import NoPicturesError, NotARunError, UnknownNameError, UsageError
from splitveil.core.nearest_folder import nearest_folder
from splitveil.core.run_folder import RunFolder
from splitveil.experiments.discover import find_runs


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("artefacts/mine", "artefact-notes", "runs/first", "runs/second"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "runs" / "firsts").touch()  # a file is no folder
    monkeypatch.chdir(tmp_path)


def test_a_file_may_be_meant_where_a_file_will_do() -> None:
    assert nearest_folder("runs/firstss", files=True) == Path("runs/firsts")
    assert nearest_folder("runs/firstss") == Path("runs/first")
    assert nearest_folder("runs/firsts/x", files=True) is None


@pytest.mark.parametrize("given", ["mine.np", "datta/mine.npz", "mi ne"])
def test_pictures_are_looked_for_beside_a_slip(given: str) -> None:
    Path("mine.npz").touch()
    Path("data").mkdir()
    Path("data/mine.npz").touch()
    Path("mi nes").mkdir()
    meant = {"mine.np": "mine.npz", "datta/mine.npz": "data/mine.npz", "mi ne": "mi nes"}[given]
    with pytest.raises(NoPicturesError) as caught:
        load_config(data={"name": given})
    assert given in caught.value.message
    assert caught.value.hint == f"Did you mean {meant}?"


@pytest.mark.parametrize(("given", "hint"), [("fashon-mini", "Did you mean 'fashion-mini'?"), ("qqq", "Name one of: ")])
def test_names_of_data_sets_come_first(given: str, hint: str) -> None:
    with pytest.raises(NoPicturesError, match=f"no data set, file or folder called '{given}'") as caught:
        load_config(data={"name": given})
    assert caught.value.hint.startswith(hint)


def test_a_run_whose_pictures_lie_elsewhere_says_where_to_call_from() -> None:
    Path("mine.npz").touch()
    run = RunFolder(Path("runs/first"))
    run.write_config(load_config(data={"name": "mine.npz"}))
    Path("mine.npz").rename("runs/mine.npz")
    with pytest.raises(
        NoPicturesError, match=r"^The pictures of runs/first are not here: there is no file or"
    ) as caught:
        run.config()
    assert "from the folder where it was trained" in caught.value.hint


def test_a_run_of_a_package_that_is_not_here_names_it() -> None:
    run = RunFolder(Path("runs/first"))
    run.write_config(load_config())
    config = run.path / "config.toml"
    config.write_text(config.read_text() + "\n[defence.blur]\nmix = 0.5\n")
    with pytest.raises(UnknownNameError, match=r"no defence called 'blur'. Known: "):
        run.config()
    run.write_json("manifest.json", {"plug_ins": {"someones_veils": "cb129879ea3a"}})
    with pytest.raises(
        UnknownNameError, match=r"no defence called 'blur'. runs/first was trained .* \(someones_veils\)"
    ):
        run.config()


def test_a_report_of_a_slip_names_the_folder() -> None:
    with pytest.raises(UsageError, match=r"no folder runs/frist\. Did you mean runs/first\?"):
        find_runs([Path("runs/frist")])


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
